"""Findings from reference solutions that are judged."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from services.data.layouts.base import Record
from services.data.records import QualityEntry, ReferenceSolution, Verifier
from shared.schemas import QualityFinding, StdioTests, Verdict
from shared.statuses import FinalStatus
from shared.text import not_run_note, shorten_end

_SHOWN = 60  # characters


def verify(records: Sequence[Record], verifier: Verifier) -> list[QualityEntry]:
    """Judge the reference solutions of a data set."""
    solutions = [
        ReferenceSolution(record.problem, number, solution)
        for record in records
        for number, solution in enumerate(record.solutions)
    ]
    rejected = verifier(solutions) if solutions else []
    return [*map(_entry, rejected), *disagreements(solutions, rejected)]


def _entry(verdict: Verdict) -> QualityEntry:
    """Describe a rejected solution, or the broken checker because of which it has no verdict."""
    problem_id = verdict.problem_id
    if not verdict.judged:
        return QualityEntry(problem_id, QualityFinding.BROKEN_CHECKER, str(verdict.detail))
    detail = f" ({verdict.detail})" if verdict.detail else ""
    passed = f"{verdict.cases_passed} of {verdict.cases_total} tests passed"
    reason = f"{verdict.final_status}{detail}, {passed}{not_run_note(verdict.cases_not_run)}"
    reason = f"solution {verdict.sample_index + 1}: {reason}"
    return QualityEntry(problem_id, QualityFinding.REJECTED_SOLUTION, reason)


def disagreements(
    solutions: Sequence[ReferenceSolution], rejected: Sequence[Verdict]
) -> Iterator[QualityEntry]:
    """Find problems of a data set whose reference solutions show that several outputs are right.

    Either a solution prints another output than the expected one and passes other tests, or two
    solutions print different outputs for the same test. A solution that passes nothing, alone, is
    more likely wrong. A problem with a checker is judged right.
    """
    for problem_id, group in groupby(solutions, lambda solution: solution.problem.problem_id):
        of_problem = list(group)
        tests = of_problem[0].problem.tests
        failures = {
            verdict.sample_index: verdict
            for verdict in rejected
            if verdict.problem_id == problem_id
        }
        wrong = [
            verdict
            for verdict in failures.values()
            if verdict.final_status is FinalStatus.WRONG_ANSWER
        ]
        if not wrong or not isinstance(tests, StdioTests) or tests.has_checker:
            continue
        accepted = [entry.number + 1 for entry in of_problem if entry.number not in failures]
        if (reason := _disagreement(wrong, accepted)) is not None:
            yield QualityEntry(problem_id, QualityFinding.MANY_ANSWERS, reason)


def _disagreement(wrong: Sequence[Verdict], accepted: Sequence[int]) -> str | None:
    """Describe the disagreement of solutions, of which some print what is not expected."""
    first = wrong[0].first_failed_case
    if first is None:
        return None
    number, test = wrong[0].sample_index + 1, first.case_index
    printed, expected = _shown(first.actual), _shown(first.expected)
    reason = f"solution {number} prints {printed} where test {test + 1} expects {expected}"
    if accepted:
        return f"{reason}, as solution {accepted[0]} does"
    for other in wrong[1:]:
        case = other.first_failed_case
        if case and case.case_index == test and _tokens(case.actual) != _tokens(first.actual):
            return f"{reason}, and solution {other.sample_index + 1} prints {_shown(case.actual)}"
    return reason if wrong[0].cases_passed else None


def _tokens(text: str | None) -> list[str]:
    return (text or "").split()


def _shown(text: str | None) -> str:
    return json.dumps(shorten_end(" ".join(_tokens(text)), _SHOWN), ensure_ascii=False)
