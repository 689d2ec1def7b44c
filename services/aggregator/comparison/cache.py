"""Comparisons of runs in the index, cached until a run has another verdict or state."""

import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from services.aggregator.comparison.source import read_run
from services.aggregator.index.overview import IndexedRun
from shared.analysis.compare import Comparison, compare_runs
from shared.analysis.runs import ComparedRun, label

# Of all runs and pairs together: each takes about 100 bytes.
_CACHED_SAMPLES = 1_000_000

# Of a run: its row, which a run that begins anew does not keep, and the row's version.
_Version = tuple[int, int]
# The rows of two runs, and the place of the second one, which gives it its letter.
_Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Made:
    """A comparison, of which versions and when it was made."""

    comparison: Comparison
    versions: tuple[_Version, _Version]
    at: float


class Comparisons:
    """Compares runs of the index; one comparison is made at a time."""

    def __init__(self, max_age: float = 2.0, clock: Callable[[], float] = time.monotonic) -> None:
        """``max_age``: seconds for which the comparison of a running run is cached."""
        self._max_age = max_age
        self._clock = clock
        self._runs: dict[_Version, ComparedRun] = {}
        self._made: OrderedDict[_Key, _Made] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, connection: sqlite3.Connection, runs: Sequence[IndexedRun]) -> list[Comparison]:
        """Compare each run with the first one.

        Raises:
            DataError: Two runs have no data set in common, or settings of another version.
        """
        with self._lock:
            return [self._pair(connection, runs, place) for place in range(1, len(runs))]

    def _pair(
        self, connection: sqlite3.Connection, runs: Sequence[IndexedRun], place: int
    ) -> Comparison:
        first, second = runs[0], runs[place]
        key, versions = (first.id, second.id, place), (_version(first), _version(second))
        made = self._made.get(key)
        changing = first.changing or second.changing
        young = made is not None and changing and self._clock() - made.at < self._max_age
        if made is None or not (made.versions == versions or young):
            ours, theirs = (self._run(connection, run) for run in (first, second))
            made = _Made(
                compare_runs(ours, replace(theirs, label=label(place))),
                versions,
                self._clock(),
            )
            self._made[key] = made
        self._made.move_to_end(key)
        self._evict()
        return made.comparison

    def _run(self, connection: sqlite3.Connection, run: IndexedRun) -> ComparedRun:
        version = _version(run)
        if version not in self._runs:
            self._runs[version] = read_run(connection, run, label(0))
        return self._runs[version]

    def _evict(self) -> None:
        """Drop the comparisons used least recently, and runs that no comparison needs."""
        while True:
            used = {version for made in self._made.values() for version in made.versions}
            self._runs = {version: self._runs[version] for version in used if version in self._runs}
            samples = sum(_samples(run) for run in self._runs.values())
            pairs = sum(_pairs(made.comparison) for made in self._made.values())
            if samples + pairs <= _CACHED_SAMPLES or len(self._made) == 1:
                return
            self._made.popitem(last=False)


def _version(run: IndexedRun) -> _Version:
    return run.id, run.version


def _samples(run: ComparedRun) -> int:
    return sum(len(verdicts) for verdicts in run.verdicts.values())


def _pairs(comparison: Comparison) -> int:
    return sum(len(one.paired) for one in comparison.datasets)
