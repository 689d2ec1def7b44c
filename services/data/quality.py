"""Audit of problems: their statements, tests and checkers, without running anything."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from shared.checkers import CheckerStyle
from shared.function_plan import fault_of, plan_of
from shared.schemas import HumanEvalTests, MbppTests, Problem, QualityFinding, StdioTests

# SandboxFusion reads at most this many bytes of a program's output.
LARGE_OUTPUT_BYTES = 128 * 1024
_NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)

Findings = dict[QualityFinding, str]
"""Defects of a problem with their reasons, which name the first test that has it, from 1."""


def audit_problem(problem: Problem) -> Findings:
    """Audit the tests, the statement and the checker of one problem.

    Outputs are equal if the checker ``tokens`` accepts one for the other. Tests of functions are
    compared as syntax: ``assert f(1) == 2`` equals ``assert f(1)==2``. A problem with its own
    checker may have several correct outputs, so its tests never contradict each other. Tests in
    another language or at the server are not read.
    """
    tests, findings = problem.tests, Findings()
    if not problem.prompt.strip():
        findings[QualityFinding.EMPTY_STATEMENT] = "the prompt has no text"
    if (fault := fault_of(tests)) is not None:
        findings[QualityFinding.TEST_ERROR] = fault
    elif isinstance(tests, HumanEvalTests | MbppTests) and (shared := plan_of(tests).shared):
        findings[QualityFinding.SHARED_PROCESS] = shared
    if isinstance(tests, StdioTests):
        findings |= _audit_outputs(tests)
    elif isinstance(tests, HumanEvalTests | MbppTests):
        sources = [tests.test] if isinstance(tests, HumanEvalTests) else tests.test_list
        findings |= _compare(_assertions(sources), one_output=True)
    return findings


def audit_lines(problems: Iterable[Problem]) -> list[str]:
    """Audit problems; one line for each kind of finding, with its first problem."""
    counts = Counter[QualityFinding]()
    first: Findings = {}
    for problem in problems:
        for kind, reason in audit_problem(problem).items():
            counts[kind] += 1
            first.setdefault(kind, f"{problem.problem_id}: {reason}")
    return [
        f"{counts[kind]} {'problem' if counts[kind] == 1 else 'problems'} with {kind}, such as "
        f"{first[kind]}"
        for kind in QualityFinding
        if kind in first
    ]


def _audit_outputs(tests: StdioTests) -> Findings:
    outputs = [" ".join(output.split()) for output in tests.outputs]
    pairs = zip((text.rstrip() for text in tests.inputs), outputs, strict=True)
    findings = _compare(pairs, one_output=not tests.checker_source)
    sizes = [len(output.encode("utf-8", "surrogatepass")) for output in tests.outputs]
    if large := [at for at, size in enumerate(sizes) if size > LARGE_OUTPUT_BYTES]:
        reason = f"test {large[0] + 1} expects {sizes[large[0]]:,} bytes"
        findings[QualityFinding.LARGE_OUTPUT] = reason + _more(large, "expect above 128 KiB")
    blank = [at for at, output in enumerate(outputs) if not output]
    if blank and tests.fn_name is None and not tests.checker_source:
        reason = f"test {blank[0] + 1} expects no output, so a program that does nothing passes it"
        findings[QualityFinding.BLANK_OUTPUT] = reason + _more(blank, "expect none")
    if tests.checker_style in (CheckerStyle.FUNCTION, CheckerStyle.SCRIPT):
        try:
            ast.parse(tests.checker_source or "")
        except _NO_PYTHON as error:
            reason = f"the checker does not compile: {type(error).__name__}: {error}"
            findings[QualityFinding.BROKEN_CHECKER] = reason
    return findings


def _more(tests: Sequence[int], verb: str) -> str:
    return f", and {len(tests) - 1} more {verb}" if len(tests) > 1 else ""


def _compare(pairs: Iterable[tuple[str, str]], *, one_output: bool) -> Findings:
    """Compare pairs of a question and its answer."""
    first: dict[str, tuple[int, str]] = {}
    findings: Findings = {}
    for number, (question, answer) in enumerate(pairs, start=1):
        other, expected = first.setdefault(question, (number, answer))
        if other == number:
            continue
        tests = f"tests {other} and {number}"
        if answer == expected:
            findings.setdefault(QualityFinding.DUPLICATE_TESTS, f"{tests} are the same")
        elif one_output:
            reason = f"{tests} have the same input and different outputs"
            findings.setdefault(QualityFinding.CONTRADICTING_TESTS, reason)
    return findings


def _assertions(sources: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (question, expected answer) of every assertion.

    An assertion without ``==`` is one question with the answer True; a source that does not parse
    is compared as text.
    """
    for source in sources:
        try:
            tree = ast.parse(source)
        except _NO_PYTHON:
            yield source, "true"
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Assert(
                    test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])
                ) if not isinstance(left, ast.Constant):
                    yield ast.dump(left), ast.dump(right)
                case ast.Assert(test=test):
                    yield ast.dump(test), "true"
