"""Samples of a run that match a filter, all answers to a problem, and problems by runs."""

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from services.aggregator.index.overview import IndexedRun
from services.aggregator.index.queries import (
    CHOICES,
    FailuresQuery,
    GridQuery,
    SampleFilter,
    SampleQuery,
    Sort,
    conditions,
    without_choices,
)
from services.aggregator.index.rows import (
    ProblemKey,
    SampleRow,
    read_answers,
    read_outline,
    read_rows,
)
from shared.analysis.statistics import pass_at_k
from shared.outlines import ProblemOutline
from shared.statuses import FinalStatus

MOST_VALUES = 100
_KS = (1, 5, 10, 100)
# Columns that ``samples_found`` covers, where they are not named as the order.
_SORTS: dict[Sort, tuple[str, ...]] = {
    "problem": ("dataset", "problem_id", "sample_index"),
    "status": ("final_status",),
}


@dataclass(frozen=True, slots=True)
class SamplePage:
    """A page of samples; ``next`` is the offset of the following one, None on the last."""

    samples: list[SampleRow]
    next: int | None


def samples_page(connection: sqlite3.Connection, run_id: int, query: SampleQuery) -> SamplePage:
    """Select one page of a run's samples."""
    where, values = conditions(run_id, query)
    keys = (*_SORTS.get(query.sort, (query.sort,)), "id")
    order = ", ".join(f"{key} {query.order}" for key in keys)
    # The page is chosen in the index that covers filters and keys.
    page = f"SELECT id AS number FROM samples WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?"
    rows = read_rows(
        connection,
        f"({page}) CROSS JOIN samples ON id = number",
        (*values, query.limit + 1, query.offset),
    )
    return SamplePage(
        rows[: query.limit], query.offset + query.limit if len(rows) > query.limit else None
    )


@dataclass(frozen=True, slots=True)
class ValueCount:
    """Samples with a value, null where it is not known."""

    value: str | None
    samples: int


@dataclass(frozen=True, slots=True)
class Facet:
    """Samples by value under all filters but the one of this choice, the most frequent first.

    At most 100 of ``total`` values, and those that are chosen.
    """

    total: int
    counts: list[ValueCount]


@dataclass(frozen=True, slots=True)
class Facets:
    """Number of samples that match all filters, and the counts of each choice."""

    samples: int
    facets: dict[str, Facet]


def facets(connection: sqlite3.Connection, run_id: int, wanted: SampleFilter) -> Facets:
    """Count the samples of a run by every choice.

    One scan of the covering index counts the samples by the values of all choices, under the other
    filters; the combinations are few and are counted here.
    """
    where, values = without_choices(run_id, wanted)
    columns = ", ".join(CHOICES.values())
    cursor = connection.cursor()
    cursor.row_factory = None
    counts: dict[str, Counter[str | None]] = {name: Counter() for name in CHOICES}
    total = 0
    for *row, samples in cursor.execute(
        f"SELECT {columns}, count(*) FROM samples WHERE {' AND '.join(where)} GROUP BY {columns}",
        values,
    ):
        kinds = {name: _values(name, value) for name, value in zip(CHOICES, row, strict=True)}
        missed = [
            name
            for name in CHOICES
            if (chosen := getattr(wanted, name)) and not set(chosen) & set(kinds[name])
        ]
        total += 0 if missed else samples
        if len(missed) > 1:
            continue  # counts nowhere: each facet leaves out one choice
        for name in missed or CHOICES:
            for value in kinds[name]:
                counts[name][value] += samples
    return Facets(
        total, {name: _facet(counts[name], getattr(wanted, name) or ()) for name in CHOICES}
    )


def _values(choice: str, value: str | None) -> list[str | None]:
    """The values of a column; what is not known is None. A sample may have several tags."""
    return (json.loads(value or "[]") if choice == "tag" else [value or None]) or [None]


def _facet(counts: Counter[str | None], chosen: tuple[str | None, ...]) -> Facet:
    ordered = sorted(counts.items(), key=lambda count: (-count[1], count[0] or ""))
    # A value that is chosen is listed, even if no sample has it under the other filters.
    listed = dict(ordered[:MOST_VALUES]) | {value: counts[value] for value in chosen}
    return Facet(len(counts), [ValueCount(*count) for count in listed.items()])


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Samples whose failures have one signature; ``id`` is the value of the filter ``group``.

    The examples are the first and the last one indexed.
    """

    id: str
    signature: str
    samples: int
    examples: list[SampleRow]


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """The largest of ``total`` groups of ``samples`` failures."""

    samples: int
    total: int
    groups: list[FailureGroup]


def failure_groups(
    connection: sqlite3.Connection, run_id: int, query: FailuresQuery
) -> FailureGroups:
    """Group the failures that match a filter, the largest group first."""
    where, values = conditions(run_id, query)
    counted = connection.execute(
        "SELECT failure_id, count(*), min(id), max(id) "
        f"FROM samples WHERE {where} AND failure_id IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1",
        values,
    ).fetchall()
    groups = []
    for failure, samples, *ends in counted[: query.limit]:
        examples = read_rows(connection, "samples WHERE id IN (?, ?) ORDER BY id", ends)
        groups.append(FailureGroup(failure, examples[0].failure or "", samples, examples))
    return FailureGroups(sum(row[1] for row in counted), len(counted), groups)


# Across runs


@dataclass(frozen=True, slots=True)
class ProblemInRun:
    """The answers of one run; ``pass_at`` is pass@k by k, of the samples that were judged.

    ``changed`` is whether statement or tests differ from those of the page.
    """

    run: str
    name: str | None
    model: str | None
    temperature: float
    judged: int
    accepted: int
    pass_at: dict[int, float]
    changed: bool
    answers: list[SampleRow]


@dataclass(frozen=True, slots=True)
class ProblemAnswers:
    """A problem as the latest run had it, with the answers of all runs, the latest run first."""

    outline: ProblemOutline | None
    judged: int
    accepted: int
    runs: list[ProblemInRun]


@dataclass(frozen=True, slots=True)
class GridRow:
    """The share of a problem's judged samples that each run solved; None without any."""

    problem_id: str
    shares: list[float | None]


@dataclass(frozen=True, slots=True)
class Grid:
    """Problems by runs, in the order that was asked for."""

    total: int
    rows: list[GridRow]


def problem_answers(
    connection: sqlite3.Connection, runs: Sequence[IndexedRun], problem: ProblemKey
) -> ProblemAnswers | None:
    """Read all answers to a problem; None if no run has any."""
    shown: ProblemOutline | None = None
    answered: list[ProblemInRun] = []
    for run in sorted(runs, key=lambda run: run.meta.started_at or 0, reverse=True):
        if not (answers := read_answers(connection, run.id, problem)):
            continue
        outline = read_outline(connection, run.id, problem)
        shown = shown or outline
        judged = sum(answer.final_status is not FinalStatus.API_ERROR for answer in answers)
        accepted = sum(answer.accepted for answer in answers)
        in_run = ProblemInRun(
            run=run.run,
            name=run.meta.name or None,
            model=run.model,
            temperature=run.meta.config.actor_rollout_ref.rollout.temperature,
            judged=judged,
            accepted=accepted,
            pass_at={k: pass_at_k(judged, accepted, k) for k in _KS if k <= judged},
            changed=bool(outline and shown and outline.digest != shown.digest),
            answers=answers,
        )
        answered.append(in_run)
    if not answered:
        return None
    judged, accepted = sum(run.judged for run in answered), sum(run.accepted for run in answered)
    return ProblemAnswers(shown, judged, accepted, answered)


def grid(connection: sqlite3.Connection, runs: Sequence[IndexedRun], query: GridQuery) -> Grid:
    """A page of the problems of a data set, with each run's share of accepted samples."""
    shares: dict[str, list[float | None]] = {}
    for place, run in enumerate(runs):
        for problem_id, share in connection.execute(
            "SELECT problem_id, avg(accepted) FROM samples WHERE run_id = ? AND dataset = ? "
            "AND final_status <> ? GROUP BY problem_id",
            (run.id, query.dataset, FinalStatus.API_ERROR),
        ):
            shares.setdefault(problem_id, [None] * len(runs))[place] = share
    order = _hardness if query.first == "hardest" else _agreement
    rows = sorted(shares.items(), key=lambda row: (order(row[1]), row[0]))
    shown = rows[query.offset : query.offset + query.limit]
    return Grid(len(rows), [GridRow(*row) for row in shown])


def _agreement(shares: Sequence[float | None]) -> tuple[float, int]:
    """The largest difference between two runs, below 0."""
    present = [share for share in shares if share is not None]
    return min(present) - max(present), 0


def _hardness(shares: Sequence[float | None]) -> tuple[float, int]:
    """The mean share of the runs; between equal ones, a problem that more runs tried is harder."""
    present = [share for share in shares if share is not None]
    return sum(present) / len(present), -len(present)
