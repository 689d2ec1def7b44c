"""Distribution of the tests to the processes of pytest-xdist, by recorded durations.

A process takes one unit of work at a time: a file, or a part of a file that takes longer than
``_PART`` seconds, unless its tests share a run that is dear to make. The longest files come first.
Files that look at every process of the machine are one unit: they would see each other's. So are
those about Kubernetes: each process would render all manifests anew.
``make durations`` writes ``tests/durations.json``: seconds by file.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

DURATIONS = Path(__file__).with_name("durations.json")
_PART = 20.0
_WHOLE = ("tests/e2e/", "tests/page/", "tests/parity/")
_LOOKS_AROUND = {"tests/sandbox/test_channels.py", "tests/sandbox/test_cases_apart.py"}
_ONE_UNIT = "tests/k8s/"
_SHORTEST = 0.5  # files that take less are not recorded


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def read_durations() -> dict[str, float]:
    return dict(json.loads(DURATIONS.read_text(encoding="utf-8")))


def longest_first(items: list[pytest.Item]) -> None:
    """Sort by the file's duration; the order within a file stays."""
    durations = read_durations()
    items.sort(key=lambda item: (-durations.get(file_of(item.nodeid), 0.0), file_of(item.nodeid)))


def units_of(nodeids: Sequence[str], durations: Mapping[str, float]) -> dict[str, str]:
    """The unit of work of each test; tests of one part of a file follow each other."""
    sizes, positions = Counter(map(file_of, nodeids)), Counter[str]()
    units = {}
    for nodeid in nodeids:
        file = file_of(nodeid)
        if file in _LOOKS_AROUND:
            units[nodeid] = "looks around"
            continue
        if file.startswith(_ONE_UNIT):
            units[nodeid] = _ONE_UNIT
            continue
        seconds = 0.0 if file.startswith(_WHOLE) else durations.get(file, 0.0)
        parts = max(1, math.ceil(seconds / _PART))
        units[nodeid] = f"{file}#{positions[file] * parts // sizes[file]}"
        positions[file] += 1
    return units


class UnitScheduling(LoadScopeScheduling):
    """Hand out units of work in the order of the collection."""

    def schedule(self) -> None:
        if self.collection is None:
            self.config.option.loadscopereorder = False  # it would put the most tests first
            collection = next(iter(self.registered_collections.values()))
            self._units = units_of(collection, read_durations())
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]


class DurationRecorder:
    """Adds up the seconds of each file, and writes them at the end of the session."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[file_of(report.nodeid)] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        recorded = {
            file: round(seconds, 1)
            for file, seconds in sorted(self._seconds.items())
            if seconds >= _SHORTEST
        }
        DURATIONS.write_text(json.dumps(recorded, indent=0) + "\n", encoding="utf-8")
