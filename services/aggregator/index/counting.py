"""Counters of what came by. They only grow: nothing is taken back when a run or verdict goes.

``verdicts`` counts entries of the streams, so a sample judged again counts each time, under the
status it got each time. The others count each verdict, and each generation, once, as it stood when
its entry was read. They are kept in the index; one made anew counts what the streams still hold.
"""

import re
import sqlite3
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from services.aggregator.index.rows import SampleRow
from shared.statuses import FinalStatus

# Between its last two bounds a pass ratio is 1: all cases passed.
BUCKETS: dict[str, tuple[float, ...]] = {
    "pass_ratio": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99999, 1.0),
    "judge_seconds": (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
    "generation_seconds": (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 3600),
    "output_tokens": tuple(float(2**n) for n in range(4, 18)),
}
OTHER = "other"
MOST_DATASETS = 50
MOST_REASONS = 50
_REASON = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")

CounterKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """A sample's new row, the one it replaces, and what hindered judging it."""

    row: SampleRow
    before: SampleRow | None
    infra_failures: Sequence[str] = ()

    @property
    def new_generation(self) -> bool:
        before = self.before
        return before is None or _generation(before) != _generation(self.row)

    @property
    def new_verdict(self) -> bool:
        before = self.before
        return before is None or _verdict(before) != _verdict(self.row)


class Counting:
    """What a batch adds to the counters; labels stay within what the table has room for."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._datasets = _labels(connection, "dataset", "verdicts")
        self._reasons = _labels(connection, "label", "infra_failures")
        self._added: defaultdict[CounterKey, float] = defaultdict(float)

    def event(self, dataset: str, status: FinalStatus) -> None:
        self._add("verdicts", dataset, status.value, 1)

    def unreadable(self) -> None:
        self._added["unreadable_entries", "", ""] += 1

    def change(self, change: Change) -> None:
        row = change.row
        if change.new_verdict:
            for reason in change.infra_failures:
                self._added["infra_failures", "", self._reason_class(reason)] += 1
            if row.final_status is not FinalStatus.API_ERROR:
                self._observe("pass_ratio", row.dataset, row.pass_ratio)
                self._observe("judge_seconds", row.dataset, row.total_judge_time)
        if change.new_generation:
            self._observe("generation_seconds", row.dataset, row.gen_time)
            self._observe("output_tokens", row.dataset, row.output_tokens)

    def store(self) -> None:
        self._connection.executemany(
            "INSERT INTO counters VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET value = value + excluded.value",
            [(*key, value) for key, value in self._added.items()],
        )

    def _observe(self, metric: str, dataset: str, value: float | None) -> None:
        if value is None:
            return
        self._add(metric, dataset, str(bisect_left(BUCKETS[metric], value)), 1)
        self._add(f"{metric}_sum", dataset, "", value)

    def _add(self, metric: str, dataset: str, label: str, value: float) -> None:
        dataset = admit(dataset, self._datasets, MOST_DATASETS)
        self._added[metric, dataset, label] += value

    def _reason_class(self, name: str) -> str:
        if not _REASON.fullmatch(name):
            return OTHER
        return admit(name, self._reasons, MOST_REASONS)


def admit(label: str, known: set[str], most: int) -> str:
    """The label itself if it is ``known`` or there is room for it, else ``OTHER``."""
    if label not in known:
        if len(known) >= most:
            return OTHER
        known.add(label)
    return label


def _labels(connection: sqlite3.Connection, column: str, metric: str) -> set[str]:
    query = f"SELECT DISTINCT {column} FROM counters WHERE metric = ?"
    return {label for (label,) in connection.execute(query, (metric,))}


def _generation(row: SampleRow) -> tuple[str, float | None]:
    return row.completion_sha256, row.finished_at


def _verdict(row: SampleRow) -> tuple[str, float | None, FinalStatus]:
    return row.completion_sha256, row.judged_at, row.final_status
