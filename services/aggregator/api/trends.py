"""Answers of the API about runs over time: history and gates."""

import sqlite3
from collections.abc import Sequence

from pydantic import ValidationError

from services.aggregator.api.trend_models import (
    GateAnswer,
    History,
    HistoryAnswer,
    HistoryGroup,
    HistoryRun,
    OtherGroup,
)
from services.aggregator.comparison.cache import Comparisons
from services.aggregator.comparison.gates import Gates
from services.aggregator.index.history import RunScore, TrendRun, by_protocol, scores, trend_run
from services.aggregator.index.overview import IndexedRun, all_runs
from services.aggregator.index.run_cache import RunCache
from shared.analysis.differences import Mismatch, run_differences
from shared.analysis.gate_policy import NamedPolicy
from shared.errors import DataError, OutputError
from shared.schemas import describe

# Runs of one trend, other measurements with their differences, and names of runs in lists.
_MOST_RUNS, _MOST_OTHERS, _MOST_NAMED = 500, 20, 20
_MOST_DIFFERENCES = 30
_MOST_TRENDS = 2000  # cached
_SHOWN_FINDINGS = 100


class Trends:
    """Answers that read many samples or runs, and are cached."""

    def __init__(self, policy: NamedPolicy | None, comparisons: Comparisons) -> None:
        """``policy``: the gate's; None without one."""
        self._trends = RunCache(trend_run, most=_MOST_TRENDS)
        self._gates = Gates(policy, comparisons)
        self._policy = policy.name if policy else None

    def history(self, connection: sqlite3.Connection, protocol: str | None) -> HistoryAnswer:
        """Group all runs, and show those of one measurement.

        Args:
            connection: A snapshot of the index.
            protocol: Hash of the measurement; None for none.

        Raises:
            LookupError: There is no such measurement.
        """
        runs = self._runs(connection)
        groups = by_protocol(runs)
        if protocol is not None and protocol not in groups:
            raise LookupError(protocol)
        shown = {name: _group(name, found) for name, found in groups.items()}
        return HistoryAnswer(
            groups=list(shown.values()),
            history=None if protocol is None else _history(protocol, groups, shown),
            unreadable={one.run.run: one.unreadable for one in runs if one.unreadable},
            policy=self._policy,
        )

    def scores(self, connection: sqlite3.Connection) -> dict[str, dict[str, RunScore]]:
        """Scores of all runs by data set."""
        return scores(self._runs(connection))

    def _runs(self, connection: sqlite3.Connection) -> list[TrendRun]:
        """All runs, the earliest first."""
        found = [self._trends.of(connection, run) for run in all_runs(connection)]
        return sorted(found, key=lambda one: (one.started_at, one.run.run))

    def gate(
        self, connection: sqlite3.Connection, baseline: IndexedRun, run: IndexedRun
    ) -> GateAnswer:
        try:
            found = self._gates.report(connection, baseline, run)
        except (DataError, OutputError) as error:
            return self._no_gate(str(error))
        except ValidationError as error:
            return self._no_gate(f"a run's record cannot be read: {describe(error)}")
        if found is None:
            return self._no_gate("no policy: set PLUMBLINE_GATE_POLICY")
        findings = sorted(found.findings, key=lambda one: one.outcome is not found.outcome)
        return GateAnswer(
            policy=self._policy,
            outcome=found.outcome.value,
            reason=None,
            findings=findings[:_SHOWN_FINDINGS],
        )

    def _no_gate(self, reason: str) -> GateAnswer:
        return GateAnswer(policy=self._policy, outcome=None, reason=reason, findings=[])


def _group(protocol: str, runs: Sequence[TrendRun]) -> HistoryGroup:
    latest = runs[::-1]
    models = dict.fromkeys(one.record.served_model for one in latest if one.record)
    datasets = dict.fromkeys(name for one in latest if one.record for name in one.run.datasets)
    return HistoryGroup(
        protocol=protocol,
        runs=len(runs),
        datasets=list(datasets),
        models=[name for name in models if name][:_MOST_NAMED],
        names={one.run.run: _name(one) or one.run.run for one in latest[:_MOST_NAMED]},
    )


def _name(one: TrendRun) -> str | None:
    return (one.record.name if one.record else "") or None


def _history(
    protocol: str, groups: dict[str, list[TrendRun]], shown: dict[str, HistoryGroup]
) -> History:
    runs = groups[protocol]
    others = [name for name in groups if name != protocol][:_MOST_OTHERS]
    return History(
        group=shown[protocol],
        runs=[_run(one) for one in runs[-_MOST_RUNS:]],
        left_out=max(0, len(runs) - _MOST_RUNS),
        others=[_other(shown[name], runs[-1], groups[name][-1]) for name in others],
    )


def _run(one: TrendRun) -> HistoryRun:
    record = one.record
    return HistoryRun(
        run=one.run.run,
        name=_name(one),
        model=record.served_model if record else None,
        started_at=one.started_at or None,
        datasets=dict(one.datasets),
    )


def _other(group: HistoryGroup, here: TrendRun, there: TrendRun) -> OtherGroup:
    ours, theirs = here.record, there.record
    if ours is None or theirs is None:
        return OtherGroup(group=group, differences=[], more=0)
    names = [name for name in here.run.datasets if name in there.run.datasets]
    first, second = (", ".join(one.run.datasets) or "none" for one in (here, there))
    settings = run_differences(ours, theirs, names, [])
    found = [Mismatch("data sets", first, second)] * (first != second)
    found += [*settings.protocol, *settings.unknown]
    return OtherGroup(
        group=group,
        differences=found[:_MOST_DIFFERENCES],
        more=max(0, len(found) - _MOST_DIFFERENCES),
    )
