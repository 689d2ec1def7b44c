"""Findings from programs that are run: reference solutions, and the problems' own checkers."""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from itertools import groupby

from services.data.layouts.base import Solution
from services.data.manifests import QualityEntry
from services.data.records import Record, ReferenceSolution, Rejected, Verifier
from shared.schemas import Problem, QualityFinding, StdioTests
from shared.statuses import FinalStatus
from shared.text import shorten_end

# A checker is tried on this many tests, the first ones, and on so many characters of them.
_TESTS = 20
_CHARACTERS = 64_000
_SHOWN = 60
_PROBE = """\
import base64, hashlib, json, sys, zlib
outputs = json.loads(zlib.decompress(base64.b64decode({packed!r})))
given = hashlib.sha256(sys.stdin.buffer.read()).hexdigest()
sys.stdout.buffer.write(outputs[given].encode())
"""


def verify(records: Sequence[Record], verifier: Verifier) -> list[QualityEntry]:
    """Judge the reference solutions of a data set, and the expected outputs where a checker is."""
    solutions = [
        ReferenceSolution(record.problem, number, solution)
        for record in records
        for number, solution in enumerate(record.solutions, start=1)
    ]
    probes = [probe for record in records if (probe := checker_probe(record.problem))]
    rejected = list(verifier(solutions)) if solutions else []
    found = [_entry(one) for one in rejected]
    found += disagreements(solutions, rejected)
    known = {entry.problem_id for entry in found if _is_broken(entry)}
    tried = [_entry(one) for one in verifier(probes)] if probes else []
    found += [one for one in tried if _is_broken(one) and one.problem_id not in known]
    return found


def _entry(rejected: Rejected) -> QualityEntry:
    reason = rejected.reason
    if rejected.finding is QualityFinding.REJECTED_SOLUTION:
        reason = f"solution {rejected.number}: {reason}"
    return QualityEntry(rejected.problem_id, rejected.finding, reason)


def _is_broken(entry: QualityEntry) -> bool:
    return entry.finding is QualityFinding.BROKEN_CHECKER


def checker_probe(problem: Problem) -> ReferenceSolution | None:
    """Make a program that prints the expected outputs, which the problem's checker must accept.

    Returns:
        The program with a copy of the problem that has its first tests only; None for a problem
        without a checker of its own, or with tests that are too large.
    """
    tests = problem.tests
    if not isinstance(tests, StdioTests) or tests.checker_source is None or tests.fn_name:
        return None
    outputs: dict[str, str] = {}
    kept: list[tuple[str, str]] = []
    size = 0
    for given, expected in zip(tests.inputs, tests.outputs, strict=True):
        digest = hashlib.sha256(given.encode()).hexdigest()
        size += len(given) + len(expected)
        if size > _CHARACTERS or len(kept) == _TESTS:
            break
        if digest not in outputs:
            outputs[digest] = expected
            kept.append((given, expected))
    if not kept:
        return None
    packed = base64.b64encode(zlib.compress(json.dumps(outputs).encode())).decode()
    fewer = tests.model_copy(
        update={"inputs": [one for one, _ in kept], "outputs": [one for _, one in kept]}
    )
    # Not a ``model_copy``, which would keep the parsed tests.
    copy = Problem(**{**problem.model_dump(), "ground_truth": fewer.model_dump_json()})
    return ReferenceSolution(copy, 1, Solution("python", _PROBE.format(packed=packed)))


def disagreements(
    solutions: Sequence[ReferenceSolution], rejected: Sequence[Rejected]
) -> Iterator[QualityEntry]:
    """Find problems of a data set whose reference solutions show that several outputs are right.

    Either a solution prints another output than the expected one and passes other tests, or two
    solutions print different outputs for the same test. A solution that passes nothing, alone, is
    more likely wrong. A problem with a checker is judged right.
    """
    for problem_id, of_problem in groupby(solutions, lambda one: one.problem.problem_id):
        ours = list(of_problem)
        tests = ours[0].problem.tests
        found = {one.number: one for one in rejected if one.problem_id == problem_id}
        wrong = [one for one in found.values() if one.status is FinalStatus.WRONG_ANSWER]
        if not wrong or not isinstance(tests, StdioTests) or tests.has_checker:
            continue
        accepted = [one.number for one in ours if one.number not in found]
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
