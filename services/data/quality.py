"""Audit of problems: their statements, tests and checkers, without running anything."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shared.checkers import CheckerStyle
from shared.function_plan import fault_of, plan_of
from shared.schemas import (
    GroundTruth,
    HumanEvalTests,
    MbppTests,
    Problem,
    ProgramTests,
    QualityFinding,
    SandboxFusionTests,
    StdioTests,
)

# SandboxFusion reads at most this many bytes of a program's output.
LARGE_OUTPUT_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A defect in a problem's tests; ``reason`` names the first test that has it, from 1."""

    kind: QualityFinding
    reason: str


def audit_problem(problem: Problem) -> list[AuditFinding]:
    """Audit the tests, the statement and the checker of one problem, without running anything."""
    findings, tests = audit_tests(problem.tests), problem.tests
    if not problem.prompt.strip():
        findings.append(AuditFinding(QualityFinding.EMPTY_STATEMENT, "the prompt has no text"))
    if (fault := fault_of(tests)) is not None:
        findings.append(AuditFinding(QualityFinding.TEST_ERROR, fault))
    elif isinstance(tests, HumanEvalTests | MbppTests) and (shared := plan_of(tests).shared):
        findings.append(AuditFinding(QualityFinding.SHARED_PROCESS, shared))
    if not isinstance(tests, StdioTests):
        return findings
    if tests.checker_style in (CheckerStyle.FUNCTION, CheckerStyle.SCRIPT):
        try:
            ast.parse(tests.checker_source or "")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = f"the checker does not compile: {type(error).__name__}: {error}"
            findings.append(AuditFinding(QualityFinding.BROKEN_CHECKER, reason))
    return findings


class AuditSummary:
    """The findings of many problems, by kind."""

    def __init__(self) -> None:
        self._problems = Counter[QualityFinding]()
        self._first: dict[QualityFinding, str] = {}

    def add(self, problem: Problem) -> None:
        """Audit a problem."""
        for finding in audit_problem(problem):
            self._problems[finding.kind] += 1
            self._first.setdefault(finding.kind, f"{problem.problem_id}: {finding.reason}")

    def lines(self) -> Iterator[str]:
        """One line for each kind, with its first problem."""
        for kind in QualityFinding:
            if count := self._problems[kind]:
                noun = "problem" if count == 1 else "problems"
                yield f"{count} {noun} with {kind}, such as {self._first[kind]}"


def audit_tests(tests: GroundTruth) -> list[AuditFinding]:
    """Audit the tests of one problem; returns at most one finding of each kind.

    Outputs are equal if the checker ``tokens`` accepts one for the other. Tests of functions are
    compared as syntax: ``assert f(1) == 2`` equals ``assert f(1)==2``. A problem with its own
    checker may have several correct outputs, so its tests never contradict each other.
    """
    if isinstance(tests, StdioTests):
        pairs = [
            (test_input.rstrip(), " ".join(output.split()))
            for test_input, output in zip(tests.inputs, tests.outputs, strict=True)
        ]
        own_checker = bool(tests.checker_source)
        findings = [*_compare(pairs, one_output=not own_checker), *_large(tests.outputs)]
        if tests.fn_name is None and not own_checker:
            findings += _blank(tests.outputs)
    elif isinstance(tests, ProgramTests | SandboxFusionTests):
        findings = []  # in another language, which is not parsed, or at the server
    else:
        source = [tests.test] if isinstance(tests, HumanEvalTests) else tests.test_list
        findings = [*_compare(list(_assertions(source)), one_output=True)]
    return findings


def _compare(pairs: list[tuple[str, str]], *, one_output: bool) -> Iterator[AuditFinding]:
    first: dict[str, tuple[int, str]] = {}
    found: dict[QualityFinding, str] = {}
    for number, (question, answer) in enumerate(pairs, start=1):
        if question not in first:
            first[question] = (number, answer)
            continue
        other, expected = first[question]
        if answer == expected:
            found.setdefault(
                QualityFinding.DUPLICATE_TESTS, f"tests {other} and {number} are the same"
            )
        elif one_output:
            reason = f"tests {other} and {number} have the same input and different outputs"
            found.setdefault(QualityFinding.CONTRADICTING_TESTS, reason)
    return (AuditFinding(kind, reason) for kind, reason in found.items())


def _blank(outputs: Iterable[str]) -> Iterator[AuditFinding]:
    blank = [number for number, output in enumerate(outputs, start=1) if not output.strip()]
    if blank:
        reason = f"test {blank[0]} expects no output, so a program that does nothing passes it"
        more = f"; {len(blank) - 1} more expect none" if len(blank) > 1 else ""
        yield AuditFinding(QualityFinding.BLANK_OUTPUT, reason + more)


def _large(outputs: Iterable[str]) -> Iterator[AuditFinding]:
    sizes = [len(output.encode("utf-8", "surrogatepass")) for output in outputs]
    large = [number for number, size in enumerate(sizes, start=1) if size > LARGE_OUTPUT_BYTES]
    if large:
        reason = f"test {large[0]} expects {sizes[large[0] - 1]:,} bytes"
        more = f", and {len(large) - 1} more expect above 128 KiB" if len(large) > 1 else ""
        yield AuditFinding(QualityFinding.LARGE_OUTPUT, reason + more)


def _assertions(sources: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (question, expected answer) of every assertion.

    An assertion without ``==`` is one question with the answer True; a source that does not parse
    is compared as text.
    """
    for source in sources:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            yield source, "true"
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert):
                yield _question(node.test)


def _question(test: ast.expr) -> tuple[str, str]:
    if (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
        and not isinstance(test.left, ast.Constant)
    ):
        return ast.dump(test.left), ast.dump(test.comparators[0])
    return ast.dump(test), "true"
