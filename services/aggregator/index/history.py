"""History of runs: those of one measurement over time, with the figures of each data set.

Runs are of the same measurement if protocol, problems and prompts are the same, whatever the model.
"""

import math
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue, ValidationError

from services.aggregator.index.overview import IndexedRun, published_metrics
from services.aggregator.index.records import run_record
from shared.analysis.measurement import dataset_hashes, measurement_hash
from shared.analysis.statistics import ratio, share_over_problems
from shared.run_record import RunRecord, RunState
from shared.schemas import describe
from shared.statuses import FinalStatus

_RATE_COLUMNS = (
    "SELECT dataset, count(*), sum(accepted), count(DISTINCT problem_id), avg(pass_ratio), "
    "sum(output_tokens), count(output_tokens), sum(total_judge_time) FROM samples "
    f"WHERE run_id = ? AND final_status <> '{FinalStatus.API_ERROR}' GROUP BY dataset"
)


@dataclass(frozen=True, slots=True)
class DatasetTrend:
    """Figures of one data set in one run, as published; of a run in progress, those so far.

    Attributes:
        planned: Number of samples.
        judged: Number of samples that were judged.
        accepted_at_1: As in ``phase0_summary.json``, with its interval and its bounds.
        pass_ratio_mean: Likewise, with its interval, which a run in progress does not have.
        tokens_per_problem: Output tokens.
        tokens_per_solved: Output tokens of all samples, by accepted sample.
        judge_seconds_per_solved: Seconds in the sandbox, likewise.
        judge_seconds: Seconds in the sandbox of all samples.
        tokens_per_second: Output tokens by active second of the run.
        samples_per_second: Judged samples by active second of the run.
    """

    planned: int
    judged: int
    accepted_at_1: float | None = None
    accepted_at_1_ci95: list[float] | None = None
    accepted_at_1_bounds: list[float] | None = None
    pass_ratio_mean: float | None = None
    pass_ratio_mean_ci95: list[float] | None = None
    tokens_per_problem: float | None = None
    tokens_per_solved: float | None = None
    judge_seconds_per_solved: float | None = None
    judge_seconds: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class TrendRun:
    """A run with its record, as far as it can be read, and the figures of its data sets.

    ``protocol`` is a hash of the measurement, ``measured`` that on each data set. If ``unreadable``
    says why the record cannot be read, there are neither hashes nor a record.
    """

    run: IndexedRun
    protocol: str | None = None
    record: RunRecord | None = None
    datasets: Mapping[str, DatasetTrend] = field(default_factory=dict)
    measured: Mapping[str, str] = field(default_factory=dict)
    unreadable: str | None = None

    @property
    def started_at(self) -> float:
        """When it began (Unix); 0 if that is unknown or cannot be right."""
        found = self.record.started_at if self.record else None
        return found if found is not None and math.isfinite(found) and found > 0 else 0.0


def trend_run(connection: sqlite3.Connection, run: IndexedRun) -> TrendRun:
    """Read a run with the figures of its data sets."""
    try:
        record = run_record(connection, run)
    except ValidationError as error:
        return TrendRun(run, unreadable=describe(error))
    published = published_metrics(connection, run)
    trends = (
        {name: _published(run, name, one, record) for name, one in published.items()}
        if published
        else _so_far(connection, run, record)
    )
    return TrendRun(run, measurement_hash(record), record, trends, dataset_hashes(record))


def _published(run: IndexedRun, name: str, found: JsonValue, record: RunRecord) -> DatasetTrend:
    metrics = found if isinstance(found, dict) else {}
    statuses = run.statuses.get(name, {})
    judged = sum(statuses.values()) - statuses.get(FinalStatus.API_ERROR, 0)
    seconds = _number(metrics, "work_seconds")
    per_problem, problems = _number(metrics, "avg_total_gen_tokens"), _number(metrics, "throughput")
    judging = _number(metrics, "avg_total_judge_time")
    tokens = None if per_problem is None or problems is None else per_problem * problems
    at_work = None if judging is None or problems is None else judging * problems
    return DatasetTrend(
        planned=run.planned.get(name, (0, 0))[1],
        judged=judged,
        accepted_at_1=_number(metrics, "accepted_at_1"),
        accepted_at_1_ci95=_interval(metrics, "accepted_at_1_ci95"),
        accepted_at_1_bounds=_interval(metrics, "accepted_at_1_bounds"),
        pass_ratio_mean=_number(metrics, "pass_ratio_mean"),
        pass_ratio_mean_ci95=_interval(metrics, "pass_ratio_mean_ci95"),
        tokens_per_problem=per_problem,
        tokens_per_solved=_number(metrics, "total_spend_per_solved_tokens"),
        judge_seconds_per_solved=_number(metrics, "total_spend_per_solved_judge_time"),
        judge_seconds=None if at_work is None or seconds is None else at_work * seconds,
        tokens_per_second=tokens,
        samples_per_second=ratio(judged, seconds or 0.0),
    )


def _so_far(
    connection: sqlite3.Connection, run: IndexedRun, record: RunRecord
) -> dict[str, DatasetTrend]:
    """Figures of a run that is not published, from its samples."""
    seconds = _seconds(record)
    trends = {
        name: DatasetTrend(run.planned.get(name, (0, 0))[1], judged=0) for name in run.datasets
    }
    for name, judged, accepted, problems, passed, tokens, counted, judging in connection.execute(
        _RATE_COLUMNS, (run.id,)
    ):
        share, interval = share_over_problems(accepted, judged, problems)
        # As in the published figures: a sum of which a part is unknown is none.
        tokens = float(tokens) if counted == judged else None
        trends[name] = DatasetTrend(
            planned=run.planned.get(name, (0, 0))[1],
            judged=judged,
            accepted_at_1=share,
            accepted_at_1_ci95=interval,
            pass_ratio_mean=passed,
            tokens_per_problem=None if tokens is None else ratio(tokens, problems),
            tokens_per_solved=None if tokens is None else ratio(tokens, accepted),
            judge_seconds_per_solved=ratio(judging, accepted),
            judge_seconds=judging,
            tokens_per_second=None if tokens is None else ratio(tokens, seconds or 0.0),
            samples_per_second=ratio(judged, seconds or 0.0),
        )
    return trends


def _seconds(record: RunRecord) -> float | None:
    """Active seconds of the run; None if none, or not a number, is recorded."""
    found = record.active_seconds
    return found if math.isfinite(found) and found > 1e-6 else None


def _number(metrics: Mapping[str, JsonValue], name: str) -> float | None:
    value = metrics.get(name)
    known = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if known and isinstance(value, int | float) else None


def _interval(metrics: Mapping[str, JsonValue], name: str) -> list[float] | None:
    value = metrics.get(name)
    if not isinstance(value, list) or len(value) != 2:
        return None
    ends = [float(end) for end in value if isinstance(end, int | float) and math.isfinite(end)]
    return ends if len(ends) == 2 else None


def by_protocol(runs: Sequence[TrendRun]) -> dict[str, list[TrendRun]]:
    """Runs by their measurement: that of the latest run first."""
    groups: dict[str, list[TrendRun]] = {}
    for one in reversed(runs):
        if one.protocol is not None:
            groups.setdefault(one.protocol, []).append(one)
    return {protocol: found[::-1] for protocol, found in groups.items()}


@dataclass(frozen=True, slots=True)
class RunScore:
    """accepted@1 of a data set, as in :class:`DatasetTrend`.

    ``difference`` is that to the last published run before that measured the same; model and seeds
    may differ. Runs whose sandboxes cannot be trusted are not taken for it.
    """

    accepted_at_1: float
    ci95: list[float] | None
    bounds: list[float] | None
    difference: float | None


def scores(runs: Sequence[TrendRun]) -> dict[str, dict[str, RunScore]]:
    """Scores by run and data set; the runs are sorted by the time they began."""
    before: dict[str, float] = {}
    found: dict[str, dict[str, RunScore]] = {}
    for one in runs:
        state = one.run.state
        counts = state is not None and state.published and state is not RunState.UNTRUSTED
        for name, trend in one.datasets.items():
            if (share := trend.accepted_at_1) is None:
                continue
            measured = one.measured.get(name, "")
            earlier = before.get(measured)
            found.setdefault(one.run.run, {})[name] = RunScore(
                share,
                trend.accepted_at_1_ci95,
                trend.accepted_at_1_bounds if trend.judged < trend.planned else None,
                None if earlier is None else share - earlier,
            )
            if counts and measured:
                before[measured] = share
    return found
