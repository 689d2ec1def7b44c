"""Queries over whole runs: counts, throughput, and figures of each data set."""

import json
import math
import sqlite3
import time
from dataclasses import dataclass
from functools import lru_cache

from pydantic import ValidationError

from shared.analysis.statistics import percentile, ratio, wilson_interval
from shared.run_record import JsonObject, RunMeta, RunState
from shared.statuses import FinalStatus

PERCENTS = (50, 90, 95, 99)
_RATE_WINDOW = 60.0
_RATIO_BINS = 10
_CACHED_META = 300
_JUDGED = f"run_id = ?1 AND dataset = ?2 AND final_status <> '{FinalStatus.API_ERROR}'"
_COLUMNS = "id, run, state, facts, events, completions, folder, reading"


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """A run with its counts.

    Attributes:
        stored_facts: JSON of the run's metadata as in the ledger, without plan and results.
        events: Number of indexed stream entries, or of samples read from a folder.
        completions: Number of samples with a completion.
        planned: Number of problems and samples by data set.
        statuses: Number of samples by data set and status.
        accepted: Number of accepted samples by data set.
        folder: URL of the folder that the run is read from; None for a run of the ledger.
        reading: Whether the folder is still being read.
    """

    id: int
    run: str
    state: RunState | None
    stored_facts: str
    events: int
    completions: int
    planned: dict[str, tuple[int, int]]
    statuses: dict[str, dict[FinalStatus, int]]
    accepted: dict[str, int]
    folder: str | None = None
    reading: bool = False

    @property
    def facts(self) -> JsonObject:
        """The run's metadata as stored in the ledger."""
        return dict(json.loads(self.stored_facts))

    def meta(self) -> RunMeta | None:
        """Parse the run's metadata; None if another version wrote it in a different format."""
        return _meta(self.stored_facts)

    @property
    def samples_planned(self) -> int:
        return sum(samples for _, samples in self.planned.values())

    @property
    def verdicts(self) -> int:
        return sum(sum(counts.values()) for counts in self.statuses.values())

    @property
    def api_errors(self) -> int:
        return sum(counts.get(FinalStatus.API_ERROR, 0) for counts in self.statuses.values())

    @property
    def datasets(self) -> list[str]:
        return sorted({*self.planned, *self.statuses})


def all_runs(connection: sqlite3.Connection) -> list[IndexedRun]:
    """List all runs by id, except those that are being deleted."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM runs ORDER BY run").fetchall()
    counts = _counts(connection, "")
    return [_run(row, counts) for row in rows if not row["run"].startswith("\0")]


def find_run(connection: sqlite3.Connection, run: str) -> IndexedRun | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM runs WHERE run = ?", (run,)).fetchone()
    if row is None or run.startswith("\0"):
        return None
    return _run(row, _counts(connection, "WHERE run_id = ?", row["id"]))


@dataclass(frozen=True, slots=True)
class _Counts:
    """Planned problems and samples, and tallies, of runs by their ids."""

    planned: dict[int, dict[str, tuple[int, int]]]
    statuses: dict[int, dict[str, dict[FinalStatus, int]]]
    accepted: dict[int, dict[str, int]]


def _counts(connection: sqlite3.Connection, where: str, *values: int) -> _Counts:
    found = _Counts({}, {}, {})
    for run, dataset, problems, samples in connection.execute(
        f"SELECT run_id, dataset, problems, samples FROM planned {where}", values
    ):
        found.planned.setdefault(run, {})[dataset] = problems, samples
    for run, dataset, status, samples, good in connection.execute(
        "SELECT run_id, dataset, final_status, samples, accepted FROM tallies "
        f"{where} ORDER BY run_id, dataset, final_status",
        values,
    ):
        if samples > 0:
            statuses = found.statuses.setdefault(run, {}).setdefault(dataset, {})
            statuses[FinalStatus(status)] = samples
            accepted = found.accepted.setdefault(run, {})
            accepted[dataset] = accepted.get(dataset, 0) + good
    return found


def _run(row: sqlite3.Row, counts: _Counts) -> IndexedRun:
    return IndexedRun(
        id=row["id"],
        run=row["run"],
        state=None if row["state"] is None else RunState(row["state"]),
        stored_facts=row["facts"],
        events=row["events"],
        completions=row["completions"],
        planned=counts.planned.get(row["id"], {}),
        statuses=counts.statuses.get(row["id"], {}),
        accepted=counts.accepted.get(row["id"], {}),
        folder=row["folder"],
        reading=bool(row["reading"]),
    )


@lru_cache(maxsize=_CACHED_META)
def _meta(facts: str) -> RunMeta | None:
    """Parse a run's metadata; the list of runs needs that of all of them every few seconds."""
    try:
        return RunMeta.model_validate(json.loads(facts))
    except ValidationError:
        return None


def results(connection: sqlite3.Connection, run: IndexedRun) -> JsonObject:
    """Read the published ``metrics`` and ``slices`` of a run; empty before it is published."""
    (found,) = connection.execute("SELECT results FROM runs WHERE id = ?", (run.id,)).fetchone()
    return dict(json.loads(found)) if run.state is not None and run.state.published else {}


def notes(connection: sqlite3.Connection, run: IndexedRun) -> list[str]:
    """Read what of a run's folder cannot be shown."""
    (found,) = connection.execute("SELECT notes FROM runs WHERE id = ?", (run.id,)).fetchone()
    return list(json.loads(found))


def published_metrics(connection: sqlite3.Connection, run: IndexedRun) -> JsonObject:
    """Read only the ``metrics`` of a run: its slices are many times as large."""
    if run.state is None or not run.state.published:
        return {}
    (found,) = connection.execute(
        "SELECT json_extract(results, '$.metrics') FROM runs WHERE id = ?", (run.id,)
    ).fetchone()
    metrics = json.loads(found) if found else None
    return metrics if isinstance(metrics, dict) else {}


def rate(connection: sqlite3.Connection, run: IndexedRun) -> float | None:
    """Compute verdicts per second over the last minute; None unless the run is running."""
    if run.state is not RunState.RUNNING:
        return None
    now = time.time()
    count, first = connection.execute(
        "SELECT count(*), min(ifnull(judged_at, -1)) FROM samples "
        "WHERE run_id = ? AND ifnull(judged_at, -1) BETWEEN ? AND ?",
        (run.id, now - _RATE_WINDOW, now),
    ).fetchone()
    return 0.0 if not count else float(count / max(1.0, now - first))


# Figures of a data set.


@dataclass(frozen=True, slots=True)
class PassRatios:
    """Histogram of pass ratios of judged samples.

    Bin i counts ratios in [i/10, (i + 1)/10) except for 0 and 1, which ``zero`` and ``one`` count.
    """

    zero: int
    bins: list[int]
    one: int


@dataclass(frozen=True, slots=True)
class DatasetFigures:
    """Statistics of judged samples; percentiles in the order of ``PERCENTS``, None without data.

    ``accepted_at_1_ci95`` is the interval of ``shared.analysis.metrics``: Wilson score, n is the
    number of problems. The pass ratios of ``samples_cut`` are lower bounds.
    """

    judged: int
    accepted: int
    accepted_at_1: float | None
    accepted_at_1_ci95: list[float] | None
    samples_cut: int
    pass_ratios: PassRatios
    output_tokens: list[float | None]
    gen_time: list[float | None]
    total_judge_time: list[float | None]


def all_figures(connection: sqlite3.Connection, run: IndexedRun) -> dict[str, DatasetFigures]:
    """Figures of each data set of a run; all its samples are scanned."""
    return {name: dataset_figures(connection, run, name) for name in run.datasets}


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
    (cut,) = connection.execute(
        f"SELECT count(*) FROM samples INDEXED BY judged_cut WHERE {_JUDGED} AND cases_not_run > 0",
        key,
    ).fetchone()
    return DatasetFigures(
        judged=judged,
        accepted=accepted,
        accepted_at_1=share,
        accepted_at_1_ci95=wilson_interval(share, problems),
        samples_cut=cut,
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
            (*key, _RATIO_BINS),
        ).fetchall()
    )
    bins = [counts.get(number, 0) for number in range(_RATIO_BINS)]
    return PassRatios(zero=counts.get(-1, 0), bins=bins, one=counts.get(_RATIO_BINS, 0))


def _percentiles(
    connection: sqlite3.Connection, key: tuple[int, str], column: str
) -> list[float | None]:
    known = f"FROM samples WHERE {_JUDGED} AND {column} IS NOT NULL"
    (count,) = connection.execute(f"SELECT count(*) {known}", key).fetchone()
    ordered = f"SELECT {column} {known} ORDER BY {column} LIMIT 2 OFFSET ?3"

    def at(percent: float) -> float | None:
        # The percentile of the ranks 0 … n-1 is the interpolation position.
        position = percentile(range(count), percent)
        if position is None:
            return None
        low = math.floor(position)
        around = [value for (value,) in connection.execute(ordered, (*key, low))]
        return percentile(around, 100 * (position - low) if len(around) > 1 else 0)

    return [at(percent) for percent in PERCENTS]
