"""The figures of a data set while its run goes on."""

import math
import sqlite3
import threading
import time
from dataclasses import dataclass

from services.aggregator.index.overview import IndexedRun
from shared.analysis.statistics import percentile, ratio, wilson_interval
from shared.statuses import FinalStatus

PERCENTS = (50, 90, 95, 99)
_BINS = 10
_KEPT_SECONDS = 2.0
_KEPT_RUNS = 50
_JUDGED = f"run_id = ?1 AND dataset = ?2 AND final_status <> '{FinalStatus.API_ERROR}'"


@dataclass(frozen=True, slots=True)
class PassRatios:
    """Judged samples by pass ratio: none passed, ten bins between, all passed.

    Bin i holds ratios from i/10 up to, and without, (i + 1)/10; exactly 0 and 1 are beside them.
    """

    zero: int
    bins: list[int]
    one: int


@dataclass(frozen=True, slots=True)
class DatasetFigures:
    """Over judged samples; percentiles by ``PERCENTS``, each None where nothing is known.

    ``accepted_at_1_ci95`` is what ``shared.analysis.metrics`` publishes: Wilson, n the problems.
    """

    judged: int
    accepted: int
    accepted_at_1: float | None
    accepted_at_1_ci95: list[float] | None
    pass_ratios: PassRatios
    output_tokens: list[float | None]
    gen_time: list[float | None]
    total_judge_time: list[float | None]


class Figures:
    """Figures of runs, at most two seconds old: each costs a walk over the run's samples."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[float, int, dict[str, DatasetFigures]]] = {}
        self._lock = threading.Lock()

    def of(self, connection: sqlite3.Connection, run: IndexedRun) -> dict[str, DatasetFigures]:
        with self._lock:
            now = time.monotonic()
            kept = self._kept.get(run.id)
            if kept and (kept[1] == run.events or now - kept[0] < _KEPT_SECONDS):
                return kept[2]
            found = {name: dataset_figures(connection, run, name) for name in run.datasets}
            self._kept[run.id] = (time.monotonic(), run.events, found)
            if len(self._kept) > _KEPT_RUNS:
                del self._kept[min(self._kept, key=lambda run_id: self._kept[run_id][0])]
            return found


def dataset_figures(
    connection: sqlite3.Connection, run: IndexedRun, dataset: str
) -> DatasetFigures:
    key = (run.id, dataset)
    samples = f"FROM samples INDEXED BY judged_problems WHERE {_JUDGED}"
    judged, accepted, problems = connection.execute(
        f"SELECT count(*), ifnull(sum(accepted), 0), "
        f"(SELECT count(*) FROM (SELECT DISTINCT problem_id {samples})) {samples}",
        key,
    ).fetchone()
    share = ratio(accepted, judged)
    return DatasetFigures(
        judged=judged,
        accepted=accepted,
        accepted_at_1=share,
        accepted_at_1_ci95=wilson_interval(share, problems),
        pass_ratios=_pass_ratios(connection, key),
        output_tokens=_percentiles(connection, key, "output_tokens"),
        gen_time=_percentiles(connection, key, "gen_time"),
        total_judge_time=_percentiles(connection, key, "total_judge_time"),
    )


def _pass_ratios(connection: sqlite3.Connection, key: tuple[int, str]) -> PassRatios:
    counts = dict(
        connection.execute(
            "SELECT CASE pass_ratio WHEN 0 THEN -1 WHEN 1 THEN ?3 "
            "ELSE CAST(pass_ratio * ?3 AS INTEGER) END AS bin, count(*) FROM samples "
            f"WHERE {_JUDGED} GROUP BY bin",
            (*key, _BINS),
        ).fetchall()
    )
    bins = [counts.get(number, 0) for number in range(_BINS)]
    return PassRatios(zero=counts.get(-1, 0), bins=bins, one=counts.get(_BINS, 0))


def _percentiles(
    connection: sqlite3.Connection, key: tuple[int, str], column: str
) -> list[float | None]:
    known = f"FROM samples WHERE {_JUDGED} AND {column} IS NOT NULL"
    (count,) = connection.execute(f"SELECT count(*) {known}", key).fetchone()
    ordered = f"SELECT {column} {known} ORDER BY {column} LIMIT 2 OFFSET ?3"

    def at(percent: float) -> float | None:
        # Of the ranks 0 … n-1 the percentile is the position itself; two values lie around it.
        position = percentile(range(count), percent)
        if position is None:
            return None
        low = math.floor(position)
        around = [value for (value,) in connection.execute(ordered, (*key, low))]
        return percentile(around, 100 * (position - low) if len(around) > 1 else 0)

    return [at(percent) for percent in PERCENTS]
