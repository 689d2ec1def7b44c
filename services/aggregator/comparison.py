"""Comparisons of runs in the index: pairs, flips, and the gate's verdicts, cached."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import numpy as np
from pydantic import ValidationError

from services.aggregator.index.overview import IndexedRun, RunCache, published_metrics
from services.aggregator.index.queries import FlipsQuery
from services.aggregator.index.rows import read_problems
from shared.analysis.bootstrap import Ints
from shared.analysis.compare import Comparison, DatasetComparison, Pair, compare_runs
from shared.analysis.gate import Finding, GateReport, NamedPolicy, Outcome, evaluate
from shared.analysis.runs import (
    STATUSES,
    VERDICT_COLUMNS,
    Bools,
    ComparedRun,
    DatasetVerdicts,
    label,
)
from shared.errors import DataError, OutputError
from shared.schemas import describe

MOST_RUNS = 10
# A sample of a run, and of a pair, takes about 100 bytes.
_CACHED_RUNS, _CACHED_PAIRS, _CACHED_GATES = 4, 12, 5000
_SHOWN_FINDINGS = 100

_ROWS = (
    f"SELECT {', '.join(VERDICT_COLUMNS)} FROM samples WHERE run_id = ? AND dataset = ? "
    "ORDER BY problem_id, sample_index"
)


@dataclass(frozen=True, slots=True)
class FlipPage:
    """Pairs of samples, by problem and index; ``next`` is the offset of the following page."""

    total: int
    flips: list[Pair]
    next: int | None


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """The gate's verdict on a run; ``outcome`` is None where ``reason`` says why there is none."""

    policy: str | None
    outcome: Outcome | None
    reason: str | None
    findings: list[Finding]


class Comparisons:
    """Compares runs of the index, and checks them against a policy.

    Args:
        policy: Rules of the gate; None without a policy.
    """

    def __init__(self, policy: NamedPolicy | None = None) -> None:
        self._policy = policy
        self._runs = RunCache(read_run, most=_CACHED_RUNS)
        self._pairs = RunCache(self._pair, most=_CACHED_PAIRS)
        self._gates = RunCache(self._report, most=_CACHED_GATES)

    def of(self, connection: sqlite3.Connection, runs: Sequence[IndexedRun]) -> list[Comparison]:
        """Compare each run with the first one.

        Raises:
            DataError: Two runs have no data set in common, or settings of another version.
        """
        first, *others = runs
        pairs = [self._pairs.of(connection, first, other) for other in others]
        return [
            replace(pair, second=replace(pair.second, label=label(place)))
            for place, pair in enumerate(pairs, 1)
        ]

    def gate(
        self, connection: sqlite3.Connection, baseline: IndexedRun, run: IndexedRun
    ) -> GateAnswer:
        """Check a run against a baseline.

        Rules for data sets that neither run has are left out: one policy serves all runs.
        """
        if self._policy is None:
            return GateAnswer(None, None, "no policy: set PLUMBLINE_GATE_POLICY", [])
        try:
            report = self._gates.of(connection, baseline, run)
        except (DataError, OutputError) as error:
            return GateAnswer(self._policy.name, None, str(error), [])
        findings = sorted(
            report.findings, key=lambda finding: finding.outcome is not report.outcome
        )
        return GateAnswer(self._policy.name, report.outcome, None, findings[:_SHOWN_FINDINGS])

    def _pair(
        self, connection: sqlite3.Connection, first: IndexedRun, second: IndexedRun
    ) -> Comparison:
        ours, theirs = (self._runs.of(connection, run) for run in (first, second))
        return compare_runs(ours, replace(theirs, label=label(1)))

    def _report(
        self, connection: sqlite3.Connection, baseline: IndexedRun, run: IndexedRun
    ) -> GateReport:
        assert self._policy is not None
        comparison = self._pairs.of(connection, baseline, run)
        present = {*comparison.first.verdicts, *comparison.second.verdicts}
        rules = self._policy.policy
        own = {name: own_rules for name, own_rules in rules.datasets.items() if name in present}
        return evaluate(rules.model_copy(update={"datasets": own}), comparison)


def run_names(text: str, most: int = MOST_RUNS, least: int = 2) -> list[str]:
    """Split a list of run ids, which are percent-encoded within it.

    Raises:
        DataError: Fewer runs than ``least`` or more than ``most``, or one twice.
    """
    names = [unquote(name) for name in text.split(",") if name]
    if len(names) < least:
        raise DataError("runs: one run cannot be compared; give two or more, separated by commas")
    if len(names) > most:
        raise DataError(f"runs: {len(names)} runs; give at most {most}")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"runs: {twice[:200]!r} is given twice; leave it out once")
    return names


def read_run(connection: sqlite3.Connection, run: IndexedRun) -> ComparedRun:
    """Load a run with the verdicts that it has so far.

    Raises:
        DataError: Another version wrote its settings in a different form.
    """
    try:
        record = run.record
    except ValidationError as error:
        raise DataError(
            f"run {run.run!r} cannot be compared: another version recorded its settings "
            f"({describe(error)})"
        ) from None
    cursor = connection.cursor()
    cursor.row_factory = None  # tuples: a row of names takes three times as long
    return ComparedRun(
        label=label(0),
        name=record.name or run.run,
        place=run.run,
        record=record,
        verdicts={
            name: DatasetVerdicts.of(cursor.execute(_ROWS, (run.id, name)).fetchall())
            for name in sorted(run.statuses)
        },
        problems=read_problems(connection, run.id),
        summary=published_metrics(connection, run),
    )


def flip_page(compared: Comparison, query: FlipsQuery) -> FlipPage:
    """A page of the pairs of two runs.

    Raises:
        DataError: The runs do not have the data set in common, or not the slice.
    """
    datasets = {data.dataset: data for data in compared.datasets}
    if (paired := datasets.get(query.dataset)) is None:
        names = ", ".join(datasets)
        raise DataError(f"dataset: {query.dataset!r} is not in both runs; {names} are")
    places = _select_pairs(paired, query)
    end = query.offset + query.limit
    return FlipPage(
        total=len(places),
        flips=[paired.pair(int(place)) for place in places[query.offset : end]],
        next=end if end < len(places) else None,
    )


def _select_pairs(paired: DatasetComparison, query: FlipsQuery) -> Ints:
    """The places of the pairs that a query asks for, in their order."""
    statuses = paired.columns(lambda verdicts: verdicts.status)
    chosen = {
        "flips": paired.flipped != 0,
        "gained": paired.flipped > 0,
        "lost": paired.flipped < 0,
        "changed": statuses[0] != statuses[1],
        "all": np.ones(len(paired), dtype=bool),
    }[query.kind]
    for status, column in zip((query.first, query.second), statuses, strict=True):
        if status is not None:
            chosen = chosen & (column == STATUSES.index(status))
    problems = np.ones(len(paired.problem_ids), dtype=bool)
    if query.q:
        text = query.q.lower()
        problems &= np.array([text in name.lower() for name in paired.problem_ids], dtype=bool)
    if query.dimension is not None:
        problems &= _in_slice(paired, query.dimension, query.bucket)
    return np.flatnonzero(chosen & problems[paired.problem])


def _in_slice(paired: DatasetComparison, dimension: str, bucket: str | None) -> Bools:
    buckets = paired.buckets.get(dimension)
    if buckets is None:
        names = ", ".join(paired.buckets)
        raise DataError(f"dimension {dimension!r} does not exist; there are {names}")
    if bucket is None or bucket not in buckets:
        raise DataError(f"{dimension} has no bucket {bucket!r}; /api/compare lists them")
    chosen = np.zeros(len(paired.problem_ids), dtype=bool)
    chosen[buckets[bucket]] = True
    return chosen
