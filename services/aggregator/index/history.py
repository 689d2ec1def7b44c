"""History of runs: those of one measurement over time, with the figures of each data set.

Runs are of the same measurement if protocol, problems and prompts are the same, whatever the model.
"""

import math
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from services.aggregator.index.overview import IndexedRun, all_figures, published_metrics
from shared.analysis.differences import Mismatch, changes, dataset_hashes, hash_of, run_differences
from shared.analysis.statistics import Metrics
from shared.run_record import RunRecord, RunState
from shared.schemas import describe

# Other measurements with their differences, and names of runs in lists.
_MOST_OTHERS, _MOST_NAMED = 20, 20
# Metrics of a trend.
_TREND = (
    *("accepted_at_1", "accepted_at_1_ci95", "accepted_at_1_bounds", "pass_ratio_mean"),
    *("throughput", "avg_total_gen_tokens", "avg_total_judge_time"),
    *("total_spend_per_solved_tokens", "total_spend_per_solved_judge_time"),
)
_TREND_SO_FAR = ("accepted_at_1", "accepted_at_1_ci95", "pass_ratio_mean")


@dataclass(frozen=True, slots=True)
class DatasetTrend:
    """Samples of one data set in one run, and its metrics as published.

    Of a run in progress ``metrics`` has accepted@1 and the mean pass ratio so far. ``difference``
    is that of accepted@1 to the last published run before that measured the same; model and seeds
    may differ. It is only in the list of runs.
    """

    planned: int
    judged: int
    metrics: Metrics = field(default_factory=dict)
    difference: float | None = None


@dataclass(frozen=True, slots=True)
class HistoryRun:
    """A run in a trend, which began at a Unix time; None if that is unknown or cannot be right."""

    run: str
    name: str | None = None
    model: str | None = None
    started_at: float | None = None
    datasets: Mapping[str, DatasetTrend] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrendRun:
    """A run with its record, as far as it can be read, and the figures of its data sets.

    ``protocol`` is a hash of the measurement, ``measured`` that on each data set. If ``unreadable``
    says why the record cannot be read, there are neither hashes nor a record.
    """

    run: IndexedRun
    shown: HistoryRun
    protocol: str | None = None
    record: RunRecord | None = None
    measured: Mapping[str, str] = field(default_factory=dict)
    unreadable: str | None = None


def trend_run(connection: sqlite3.Connection, run: IndexedRun) -> TrendRun:
    """Read a run with the figures of its data sets."""
    try:
        record = run.record
    except ValidationError as error:
        return TrendRun(run, HistoryRun(run.run), unreadable=describe(error))
    metrics: dict[str, Metrics] = {
        name: {key: values[key] for key in _TREND if key in values}
        for name, values in published_metrics(connection, run).items()
    } or _so_far(connection, run)
    trends = {
        name: DatasetTrend(run.samples_planned_of(name), run.judged(name), metrics.get(name, {}))
        for name in run.datasets
    }
    started = record.started_at
    started = started if started and math.isfinite(started) and started > 0 else None
    shown = HistoryRun(run.run, record.name or None, record.served_model, started, trends)
    measured = dataset_hashes(record)
    return TrendRun(run, shown, hash_of({**measured}), record, measured)


def _so_far(connection: sqlite3.Connection, run: IndexedRun) -> dict[str, Metrics]:
    return {
        name: {key: getattr(figures, key) for key in _TREND_SO_FAR}
        for name, figures in all_figures(connection, run).items()
        if figures.judged
    }


def scores(runs: Sequence[TrendRun]) -> dict[str, dict[str, DatasetTrend]]:
    """Figures by run and data set, where there are any; the runs are sorted by their begin.

    Runs whose sandboxes cannot be trusted are compared with others, but none with them.
    """
    measured = (
        (
            run.shown.run,
            run.measured,
            {
                name: trend.metrics.get("accepted_at_1")
                for name, trend in run.shown.datasets.items()
            },
            run.run.state in (RunState.COMPLETE, RunState.INCOMPLETE),
        )
        for run in runs
    )
    since = {(run, dataset): difference for run, dataset, _, difference in changes(measured)}
    return {
        run.shown.run: {
            name: replace(trend, difference=since.get((run.shown.run, name)))
            for name, trend in run.shown.datasets.items()
            if trend.metrics.get("accepted_at_1") is not None
        }
        for run in runs
    }


# Answers of the API.


@dataclass(frozen=True, slots=True)
class HistoryGroup:
    """Runs of one measurement, in brief; ``models`` and ``names`` are the latest few.

    ``differences`` are those to the measurement that is shown, beside it.
    """

    protocol: str
    runs: int
    datasets: list[str]
    models: list[str]
    names: dict[str, str]
    differences: list[Mismatch] = field(default_factory=list)

    @classmethod
    def of(cls, protocol: str, runs: Sequence[TrendRun]) -> "HistoryGroup":
        latest = [run.shown for run in reversed(runs)]
        models = dict.fromkeys(run.model for run in latest if run.model)
        return cls(
            protocol=protocol,
            runs=len(runs),
            datasets=list(dict.fromkeys(name for run in latest for name in run.datasets)),
            models=list(models)[:_MOST_NAMED],
            names={run.run: run.name or run.run for run in latest[:_MOST_NAMED]},
        )


@dataclass(frozen=True, slots=True)
class History:
    """Runs of one measurement, the earliest first, and those of others apart from them."""

    group: HistoryGroup
    runs: list[HistoryRun]
    others: list[HistoryGroup]


@dataclass(frozen=True, slots=True)
class HistoryAnswer:
    """All measurements, that of the latest run first, and the history of the one asked for.

    ``unreadable`` says of runs by id why their record cannot be read. ``policy`` is the name of the
    gate's policy, None if there is none.
    """

    groups: list[HistoryGroup]
    history: History | None
    unreadable: dict[str, str]
    policy: str | None


def history_answer(
    runs: Sequence[TrendRun], protocol: str | None, policy: str | None
) -> HistoryAnswer:
    """Group all runs, which are sorted by the time they began, and show those of one measurement.

    Raises:
        LookupError: There is no such measurement.
    """
    groups: dict[str, list[TrendRun]] = {}
    for run in reversed(runs):
        if run.protocol is not None:
            groups.setdefault(run.protocol, []).insert(0, run)
    shown = {name: HistoryGroup.of(name, members) for name, members in groups.items()}
    return HistoryAnswer(
        groups=list(shown.values()),
        history=None if protocol is None else _history(protocol, groups, shown),
        unreadable={run.run.run: run.unreadable for run in runs if run.unreadable},
        policy=policy,
    )


def _history(
    protocol: str, groups: Mapping[str, list[TrendRun]], shown: Mapping[str, HistoryGroup]
) -> History:
    runs = groups[protocol]
    others = [name for name in groups if name != protocol][:_MOST_OTHERS]
    return History(
        group=shown[protocol],
        runs=[run.shown for run in runs],
        others=[
            replace(shown[name], differences=_differences(runs[-1], groups[name][-1]))
            for name in others
        ],
    )


def _differences(here: TrendRun, there: TrendRun) -> list[Mismatch]:
    assert here.record is not None
    assert there.record is not None
    names = [name for name in here.run.datasets if name in there.run.datasets]
    settings = run_differences(here.record, there.record, names, [])
    first, second = (", ".join(run.run.datasets) or "none" for run in (here, there))
    datasets = [Mismatch("data sets", first, second)] * (first != second)
    return [*datasets, *settings.protocol, *settings.unknown]
