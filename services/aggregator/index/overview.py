"""Queries over whole runs: counts, throughput, figures of each data set, and their cache."""

import json
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, Generic, Self, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from shared.analysis.bootstrap import Floats
from shared.analysis.statistics import Metrics, share_over_problems
from shared.run_record import DatasetRecord, JsonObject, RunMeta, RunRecord, RunState
from shared.statuses import FinalStatus

PERCENTS = (50, 90, 95, 99)
_RATIO_BINS = 10
_CACHED_META = 300
# Seconds for which the value of a changing run is kept.
_MAX_AGE = 2.0
_JUDGED = f"WHERE run_id = ? AND dataset = ? AND final_status <> '{FinalStatus.API_ERROR}'"
_FIGURES = (
    "SELECT accepted, pass_ratio, cases_not_run, ifnull(output_tokens, 'nan'), "
    f"ifnull(gen_time, 'nan'), total_judge_time FROM samples {_JUDGED}"
)
_PROBLEMS = f"SELECT count(DISTINCT problem_id) FROM samples {_JUDGED}"
_COLUMNS = (
    "id, run, state, facts AS stored_facts, datasets AS stored_datasets, events, version, "
    "completions, folder, reading"
)
_DATASETS = TypeAdapter(list[DatasetRecord])


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """A run with its counts.

    Attributes:
        stored_facts: JSON of the run's metadata as in the ledger, without plan and results.
        stored_datasets: JSON of the data sets as in ``run.json``.
        events: Number of indexed stream entries, or of samples read from a folder.
        version: Grows with every change of the run: the key of all caches.
        completions: Number of samples with a completion.
        folder: URL of the folder that the run is read from; None for a run of the ledger.
        reading: Whether the folder is still being read.
        statuses: Number of samples by data set and status.
        accepted: Number of accepted samples by data set.
    """

    id: int
    run: str
    state: RunState | None
    stored_facts: str
    stored_datasets: str
    events: int
    version: int
    completions: int
    folder: str | None
    reading: bool
    statuses: dict[str, dict[FinalStatus, int]] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)

    @property
    def facts(self) -> JsonObject:
        """The run's metadata as stored in the ledger."""
        return dict(json.loads(self.stored_facts))

    @property
    def planned(self) -> dict[str, tuple[int, int]]:
        """Number of problems and samples by data set."""
        datasets = _DATASETS.validate_json(self.stored_datasets)
        return {dataset.dataset: (dataset.problems, dataset.samples) for dataset in datasets}

    @property
    def meta(self) -> RunMeta:
        """The run's metadata, parsed; empty if another version wrote it in a different format."""
        return _meta(self.stored_facts)

    @property
    def record(self) -> RunRecord:
        """The record of the run: what is published, else its metadata and what is counted so far.

        Raises:
            ValidationError: Another version wrote the run's facts.
        """
        facts = self.facts
        document = {
            **facts,
            "datasets": facts.get("datasets") or json.loads(self.stored_datasets),
            "run": self.run,
            "state": self.state or RunState.RUNNING,
            "complete": self.state is RunState.COMPLETE,
            "samples": self.samples_planned,
            "samples_unjudged": max(self.samples_planned - self.verdicts, 0) + self.api_errors,
        }
        return RunRecord.model_validate(document)

    @property
    def model(self) -> str | None:
        return self.meta.model or self.meta.config.actor_rollout_ref.model.path or None

    def language(self, dataset: str) -> str:
        """The language of a data set's programs."""
        return self.meta.config.judge.for_dataset(dataset).language

    @property
    def changing(self) -> bool:
        """Whether more is to come."""
        return self.reading or self.state is None or not self.state.final

    def samples_planned_of(self, dataset: str) -> int:
        return self.planned.get(dataset, (0, 0))[1]

    def judged(self, dataset: str) -> int:
        """Number of a data set's samples with a verdict on the answer."""
        counts = self.statuses.get(dataset, {})
        return sum(counts.values()) - counts.get(FinalStatus.API_ERROR, 0)

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
    """List all runs by id."""
    return _runs(connection, "SELECT id FROM runs")


def find_run(connection: sqlite3.Connection, run: str) -> IndexedRun | None:
    return next(iter(_runs(connection, "SELECT id FROM runs WHERE run = ?", run)), None)


def _runs(connection: sqlite3.Connection, ids: str, *values: str) -> list[IndexedRun]:
    runs: dict[int, IndexedRun] = {}
    for row in connection.execute(
        f"SELECT {_COLUMNS} FROM runs WHERE id IN ({ids}) ORDER BY run", values
    ):
        state = row["state"] and RunState(row["state"])
        runs[row["id"]] = IndexedRun(**{**row, "state": state, "reading": bool(row["reading"])})
    for run_id, dataset, status, samples, accepted in connection.execute(
        "SELECT run_id, dataset, final_status, samples, accepted FROM tallies "
        f"WHERE run_id IN ({ids}) AND samples > 0 ORDER BY run_id, dataset, final_status",
        values,
    ):
        run = runs[run_id]
        run.statuses.setdefault(dataset, {})[FinalStatus(status)] = samples
        run.accepted[dataset] = run.accepted.get(dataset, 0) + accepted
    return list(runs.values())


@lru_cache(maxsize=_CACHED_META)
def _meta(facts: str) -> RunMeta:
    """Parse a run's metadata; the list of runs needs that of all of them every few seconds."""
    try:
        return RunMeta.model_validate(json.loads(facts))
    except ValidationError:
        return RunMeta()


def results(connection: sqlite3.Connection, run: IndexedRun, part: str = "$") -> dict[str, Any]:
    """Read the published ``metrics`` and ``slices`` of a run; empty before it is published.

    ``part`` is the path of one of them: slices are many times as large as metrics.
    """
    if run.state is None or not run.state.published:
        return {}
    (document,) = connection.execute(
        "SELECT json_extract(results, ?) FROM runs WHERE id = ?", (part, run.id)
    ).fetchone()
    return dict(json.loads(document)) if document else {}


def published_metrics(connection: sqlite3.Connection, run: IndexedRun) -> dict[str, Metrics]:
    return results(connection, run, "$.metrics")


def notes(connection: sqlite3.Connection, run: IndexedRun) -> list[str]:
    """Read what of a run's folder cannot be shown, and whether the run stopped early."""
    (stored,) = connection.execute("SELECT notes FROM runs WHERE id = ?", (run.id,)).fetchone()
    stopped = run.meta.stopped
    return [*([f"{stopped.described}; no baseline"] if stopped else []), *json.loads(stored)]


def unjudged_reasons(connection: sqlite3.Connection, run: IndexedRun) -> dict[str, int]:
    """Count the samples that could not be judged by their reason, the most frequent one first."""
    if not run.api_errors:
        return {}
    return dict(
        connection.execute(
            "SELECT ifnull(detail, 'unknown'), count(*) FROM samples WHERE run_id = ? "
            f"AND final_status = '{FinalStatus.API_ERROR}' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20",
            (run.id,),
        ).fetchall()
    )


# Figures of a data set.


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles over judged samples, interpolated linearly; None without data."""

    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, values: Floats) -> Self:
        valid = values[~np.isnan(values)]
        if not len(valid):
            return cls(None, None, None, None)
        return cls(*(float(percentile) for percentile in np.percentile(valid, PERCENTS)))


@dataclass(frozen=True, slots=True)
class PassRatioCounts:
    """Judged samples by pass ratio: exactly 0, ten bins of a tenth between, exactly 1."""

    zero: int
    bins: list[int]
    one: int

    @classmethod
    def of(cls, ratios: Floats) -> Self:
        between = ratios[(ratios > 0) & (ratios < 1)]
        bins = np.bincount((between * _RATIO_BINS).astype(int), minlength=_RATIO_BINS)
        return cls(int((ratios == 0).sum()), bins.tolist(), int((ratios == 1).sum()))


@dataclass(frozen=True, slots=True)
class DatasetFigures:
    """Figures of a data set so far; n of the confidence interval is the number of problems.

    The pass ratios of ``samples_cut``, some of whose cases were not run, are lower bounds.
    """

    planned_problems: int
    planned_samples: int
    statuses: dict[FinalStatus, int]
    judged: int
    accepted: int
    accepted_at_1: float | None
    accepted_at_1_ci95: list[float] | None
    samples_cut: int
    pass_ratio_mean: float | None
    pass_ratios: PassRatioCounts
    output_tokens: Percentiles
    gen_time: Percentiles
    total_judge_time: Percentiles


def all_figures(connection: sqlite3.Connection, run: IndexedRun) -> dict[str, DatasetFigures]:
    """Figures of each data set of a run; all its samples are scanned."""
    return {name: dataset_figures(connection, run, name) for name in run.datasets}


def dataset_figures(
    connection: sqlite3.Connection, run: IndexedRun, dataset: str
) -> DatasetFigures:
    cursor = connection.cursor()
    cursor.row_factory = None
    selected = cursor.execute(_FIGURES, (run.id, dataset))
    # Without a list of rows, which would take half of the time; NULL is NaN.
    rows = np.fromiter(chain.from_iterable(selected), dtype=np.float64).reshape(-1, 6)
    accepted, ratios, left, tokens, gen_time, judge_time = rows.T
    (problems,) = cursor.execute(_PROBLEMS, (run.id, dataset)).fetchone()
    share, interval = share_over_problems(int(accepted.sum()), len(rows), problems)
    planned_problems, planned_samples = run.planned.get(dataset, (0, 0))
    return DatasetFigures(
        planned_problems=planned_problems,
        planned_samples=planned_samples,
        statuses=run.statuses.get(dataset, {}),
        judged=len(rows),
        accepted=int(accepted.sum()),
        accepted_at_1=share,
        accepted_at_1_ci95=interval,
        samples_cut=int((left > 0).sum()),
        pass_ratio_mean=float(ratios.mean()) if len(rows) else None,
        pass_ratios=PassRatioCounts.of(ratios),
        output_tokens=Percentiles.of(tokens),
        gen_time=Percentiles.of(gen_time),
        total_judge_time=Percentiles.of(judge_time),
    )


# Cache


T = TypeVar("T")
Ints = tuple[int, ...]


class RunCache(Generic[T]):
    """Computes a value of runs again when one of them has changed; thread-safe.

    The value of a run that is in progress is kept for two seconds, whatever changes. The values
    that were used least recently are dropped.

    Args:
        compute: Computes the value from a snapshot of the index and the runs; one at a time.
        most: Number of values.
        clock: Seconds since any moment.
    """

    def __init__(
        self,
        compute: Callable[..., T],
        *,
        most: int = 50,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._compute, self._clock, self._most = compute, clock, most
        # By the runs' ids: versions, time, value.
        self._made: dict[Ints, tuple[Ints, float, T]] = {}
        self._lock = threading.Lock()

    def of(self, connection: sqlite3.Connection, *runs: IndexedRun) -> T:
        """The value of runs that were just read from the same snapshot."""
        key, versions = tuple(run.id for run in runs), tuple(run.version for run in runs)
        with self._lock:
            versions_then, then, value = self._made.pop(key, ((), 0.0, None))
            young = any(run.changing for run in runs) and self._clock() - then < _MAX_AGE
            if value is None or not (versions_then == versions or young):
                value = self._compute(connection, *runs)
                versions_then, then = versions, self._clock()
            self._made[key] = versions_then, then, value  # the last one
            if len(self._made) > self._most:
                del self._made[next(iter(self._made))]
            return value
