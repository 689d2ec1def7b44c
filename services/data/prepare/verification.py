"""Findings from reference solutions that are judged."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from services.data.layouts.base import Record
from services.data.manifests import QualityEntry
from services.data.records import ReferenceSolution, Rejected, Verifier
from shared.schemas import QualityFinding, StdioTests
from shared.statuses import FinalStatus
from shared.text import shorten_end

_SHOWN = 60  # characters


def verify(records: Sequence[Record], verifier: Verifier) -> list[QualityEntry]:
    """Judge the reference solutions of a data set."""
    solutions = [
        ReferenceSolution(record.problem, number, solution)
        for record in records
        for number, solution in enumerate(record.solutions, start=1)
    ]
    rejected = list(verifier(solutions)) if solutions else []
    return [*map(_entry, rejected), *disagreements(solutions, rejected)]


def _entry(rejected: Rejected) -> QualityEntry:
    reason = rejected.reason
    if rejected.finding is QualityFinding.REJECTED_SOLUTION:
        reason = f"solution {rejected.number}: {reason}"
    return QualityEntry(rejected.problem_id, rejected.finding, reason)


def disagreements(
    solutions: Sequence[ReferenceSolution], rejected: Sequence[Rejected]
) -> Iterator[QualityEntry]:
    """Find problems of a data set whose reference solutions show that several outputs are right.

    Either a solution prints another output than the expected one and passes other tests, or two
    solutions print different outputs for the same test. A solution that passes nothing, alone, is
    more likely wrong. A problem with a checker is judged right.
    """
    for problem_id, group in groupby(solutions, lambda solution: solution.problem.problem_id):
        of_problem = list(group)
        tests = of_problem[0].problem.tests
        failures = {entry.number: entry for entry in rejected if entry.problem_id == problem_id}
        wrong = [entry for entry in failures.values() if entry.status is FinalStatus.WRONG_ANSWER]
        if not wrong or not isinstance(tests, StdioTests) or tests.has_checker:
            continue
        accepted = [entry.number for entry in of_problem if entry.number not in failures]
        if (reason := _disagreement(wrong, accepted)) is not None:
            yield QualityEntry(problem_id, QualityFinding.MANY_ANSWERS, reason)


def _disagreement(wrong: Sequence[Rejected], accepted: Sequence[int]) -> str | None:
    """Describe the disagreement of solutions, of which some print what is not expected."""
    first = wrong[0]
    if first.failed is None:
        return None
    test = first.failed.case_index
    printed, expected = _shown(first.failed.actual), _shown(first.failed.expected)
    reason = f"solution {first.number} prints {printed} where test {test + 1} expects {expected}"
    if accepted:
        return f"{reason}, as solution {accepted[0]} does"
    for other in wrong[1:]:
        same = other.failed is not None and other.failed.case_index == test
        if same and other.failed and _tokens(other.failed.actual) != _tokens(first.failed.actual):
            return f"{reason}, and solution {other.number} prints {_shown(other.failed.actual)}"
    return reason if first.cases_passed else None


def _tokens(text: str | None) -> list[str]:
    return (text or "").split()


def _shown(text: str | None) -> str:
    return json.dumps(shorten_end(" ".join(_tokens(text)), _SHOWN), ensure_ascii=False)
