"""Queries over several runs: all answers to one problem, and a grid of problems by runs."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from services.aggregator.index.overview import IndexedRun
from services.aggregator.index.queries import GridQuery
from services.aggregator.index.rows import ProblemKey, SampleRow, read_answers, read_outline
from shared.analysis.statistics import pass_at_k
from shared.outlines import ProblemOutline
from shared.statuses import FinalStatus

_KS = (1, 5, 10, 100)


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
    latest = sorted(runs, key=lambda run: run.meta.started_at or 0, reverse=True)
    answers = {run.run: read_answers(connection, run.id, problem) for run in latest}
    latest = [run for run in latest if answers[run.run]]
    if not latest:
        return None
    outlines = {run.run: read_outline(connection, run.id, problem) for run in latest}
    shown = next((one for one in outlines.values() if one is not None), None)
    found = [_in_run(run, answers[run.run], outlines[run.run], shown) for run in latest]
    return ProblemAnswers(
        outline=shown,
        judged=sum(one.judged for one in found),
        accepted=sum(one.accepted for one in found),
        runs=found,
    )


def _in_run(
    run: IndexedRun,
    answers: list[SampleRow],
    outline: ProblemOutline | None,
    shown: ProblemOutline | None,
) -> ProblemInRun:
    judged = sum(answer.final_status is not FinalStatus.API_ERROR for answer in answers)
    accepted = sum(answer.accepted for answer in answers)
    return ProblemInRun(
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
    known = [share for share in shares if share is not None]
    return min(known) - max(known), 0


def _hardness(shares: Sequence[float | None]) -> tuple[float, int]:
    """The mean share of the runs; between equal ones, a problem that more runs tried is harder."""
    known = [share for share in shares if share is not None]
    return sum(known) / len(known), -len(known)
