"""Special judges: checkers that a problem brings along, in Python or C++ (testlib).

They run in sandbox calls of their own, after the answer: one process per case, with the limits of
an answer. A checker that breaks on the expected output, or rejects it, is a fault of the problem,
never a wrong answer. One that accepts it and breaks on an answer's output has been given a wrong
one.
"""

import asyncio
import base64
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from importlib.resources import files
from weakref import WeakKeyDictionary

from services.judge import calls
from services.judge.harness.sources import source
from services.judge.methods.base import Task, compute
from services.judge.sandbox import SandboxClient, SandboxUnavailableError
from services.judge.verdict import CaseOutcome, Outcomes
from shared.checkers import CheckerFault, CheckerStyle
from shared.harness.wire import CaseRun
from shared.schemas import InfraFailure, StdioTests, sha256
from shared.statuses import CaseCode, FailureKind, VerdictDetail

_SECONDS = 2.0
# Bytes of an output as it is sent; a request may have about twice as many, and inputs besides.
_MOST_OUTPUT = 24 * 2**20
_MEMORY_MB = 1024
# Outputs of an answer on which a checker may exceed its time, before it is asked no further.
_MOST_STALLS = 2
_COMPILE_SECONDS = 120.0
_SHOWN = 300
_BINARIES_KEPT = 32
_CASES_KEPT = 20_000
_TESTLIB = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]testlib\.h[>"].*$', re.MULTILINE)
_ELF = b"\x7fELF"
_STARTED = b"!"


class CheckerFailedError(SandboxUnavailableError):
    """The problem's checker cannot judge; the answer is not at fault."""

    def __init__(self, fault: CheckerFault, text: str = "") -> None:
        detail = " ".join(text.split())
        if len(detail) > _SHOWN:
            detail = f"{detail[: _SHOWN // 2]} ... {detail[-_SHOWN // 2 :]}"
        shown = f"{fault}: {detail}" if detail else str(fault)
        super().__init__([InfraFailure(kind=FailureKind.CHECKER, text=shown)])
        self.fault = fault


class _Outcome(Enum):
    ACCEPTED = "accepted"
    WRONG = "wrong"
    POINTS = "points"


# Exit codes: testlib's for a wrong answer (also of its form) and, in ``harness/checking.py``, ours.
_ACCEPTED, _WRONG, _POINTS, _PARTIAL = 0, (1, 2, 4, 8), 7, range(50, 251)
_FAULTS: Mapping[int, CheckerFault] = {
    3: CheckerFault.FAILED,
    40: CheckerFault.NOT_COMPILED,
    41: CheckerFault.CRASHED,
}
_SCORE = re.compile(r"points (-?\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class _Report:
    """Result of the checker for one case; ``points`` have the checker's own scale."""

    outcome: _Outcome
    comment: str
    points: float = 0.0

    def passes(self, expected: "_Report") -> bool:
        """Whether an output is right; with points, if it has as many as the expected output."""
        if self.outcome is expected.outcome is _Outcome.POINTS:
            return self.points >= expected.points
        return self.outcome is _Outcome.ACCEPTED

    @classmethod
    def of(cls, code: int, comment: str) -> "_Report":
        """Interpret an exit code.

        Raises:
            CheckerFailedError: The checker failed, or the code has no meaning.
        """
        if code == _ACCEPTED:
            return cls(_Outcome.ACCEPTED, comment)
        if code in _WRONG:
            return cls(_Outcome.WRONG, comment)
        if code == _POINTS and (score := _SCORE.match(comment)):
            return cls(_Outcome.POINTS, comment, float(score[1]))
        if code in _PARTIAL:
            return cls(_Outcome.POINTS, comment, float(code - _PARTIAL.start))
        if code in _FAULTS:
            raise CheckerFailedError(_FAULTS[code], comment)
        said = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise CheckerFailedError(CheckerFault.CRASHED, f"{said} {comment}")


@dataclass(slots=True)
class _Kept:
    """Compiled checkers, and reports on expected outputs, of one pool of sandboxes.

    A binary fits the compiler and the libraries of the pool's sandboxes.
    """

    binaries: dict[str, bytes | CheckerFailedError] = field(default_factory=dict)
    expected: dict[str, _Report] = field(default_factory=dict)
    compiling: dict[str, asyncio.Lock] = field(default_factory=dict)

    def trim(self) -> None:
        """Forget what is too much to keep; it is made again when it is needed."""
        if len(self.binaries) > _BINARIES_KEPT:
            self.binaries.clear()
        if len(self.expected) > _CASES_KEPT:
            self.expected.clear()


_KEPT: WeakKeyDictionary[SandboxClient, _Kept] = WeakKeyDictionary()


@dataclass(frozen=True)
class SpecialJudge:
    """The checker of one problem."""

    source: str
    style: CheckerStyle

    @classmethod
    def of(cls, tests: StdioTests) -> "SpecialJudge | None":
        """Return the problem's checker, if it has one."""
        if tests.checker_source is None or tests.checker_style is None:
            return None
        return cls(tests.checker_source, tests.checker_style)

    @property
    def name(self) -> str:
        language = "cpp" if self.style is CheckerStyle.BINARY else "python"
        return f"{language}:{sha256(self.source)[:8]}"

    async def check(self, task: Task, outcomes: Outcomes) -> Outcomes:
        """Judge the cases that passed so far.

        Raises:
            CheckerFailedError: The checker cannot judge.
            SandboxUnavailableError: The sandbox gave no usable response.
        """
        places = sorted(p for p, case in outcomes.items() if case.code is CaseCode.PASSED)
        if long := [p for p in places if _length(outcomes[p].actual) > _MOST_OUTPUT]:
            code, detail = CaseCode.RUNTIME_ERROR, VerdictDetail.OUTPUT_LIMIT
            cut = {place: replace(outcomes[place], code=code, detail=detail) for place in long}
            outcomes = {**outcomes, **cut}
            places = [p for p in places if p not in long]
        if not places:
            return outcomes
        runner = _limited(task)
        kept = _KEPT.setdefault(task.sandbox, _Kept())
        kept.trim()
        program = await self._program(runner, kept)
        cases = [_Case.of(outcomes[place]) for place in places]
        reports = await self._reports(runner, program, kept, cases)
        checked = {
            place: _judged(outcomes[place], *pair)
            for place, pair in zip(places, reports, strict=True)
        }
        return {**outcomes, **checked}

    async def _reports(
        self, task: Task, program: str, kept: _Kept, cases: Sequence["_Case"]
    ) -> list[tuple[_Report, _Report]]:
        """Return the reports on each case's output and on its expected output.

        An expected output is judged once per problem; the checker must accept it.
        """
        checker = sha256(program)
        size = sum(case.size for case in cases)
        keys = await compute(lambda: [case.expected_key(checker) for case in cases], size)
        expected = {key: case.with_expected() for key, case in zip(keys, cases, strict=True)}
        known = {key: kept.expected[key] for key in expected if key in kept.expected}
        unknown = {key: case for key, case in expected.items() if key not in known}
        reports = await _run(task, program, [*unknown.values(), *cases])
        for key, report in zip(unknown, reports, strict=False):
            if isinstance(report, CheckerFailedError):
                raise report
            if report.outcome is _Outcome.WRONG:
                raise CheckerFailedError(CheckerFault.REJECTS_EXPECTED, report.comment)
            known[key] = report
        kept.expected |= known
        ours = [_on_output(report) for report in reports[len(unknown) :]]
        return [(report, known[key]) for report, key in zip(ours, keys, strict=True)]

    async def _program(self, task: Task, kept: _Kept) -> str:
        driver = source("checking")
        if self.style is not CheckerStyle.BINARY:
            return f"_STYLE = {self.style.value!r}\n_CHECKER = {self.source!r}\n{driver}"
        text = self._cpp()
        key = sha256(text)
        async with kept.compiling.setdefault(key, asyncio.Lock()):
            if key not in kept.binaries:
                kept.binaries[key] = await _compile(task, text)
            binary = kept.binaries[key]
        kept.compiling.pop(key, None)
        if isinstance(binary, CheckerFailedError):
            raise binary.with_traceback(None)
        packed = base64.b64encode(binary).decode()
        return f"_STYLE = {self.style.value!r}\n_CHECKER = {packed!r}\n{driver}"

    def _cpp(self) -> str:
        """The source with the header in place: a sandbox's compiler gets one file."""
        here = f'#line 1 "testlib.h"\n{_harness_text("testlib.h")}\n#line 2 "checker.cpp"'
        text = _TESTLIB.sub(lambda _: here, self.source, count=1)
        return f"{text}\n{_harness_text('checker_start.cpp')}"


def _length(output: str | None) -> int:
    """Bytes of an output in a request, which escapes control characters and quotes."""
    return len(json.dumps(output)) if output else 0


@dataclass(frozen=True, slots=True)
class _Case:
    input: str
    output: str
    expected: str

    @classmethod
    def of(cls, outcome: CaseOutcome) -> "_Case":
        return cls(outcome.input or "", outcome.actual or "", outcome.expected or "")

    def with_expected(self) -> "_Case":
        return replace(self, output=self.expected)

    def expected_key(self, checker: str) -> str:
        return sha256("\0".join((checker, sha256(self.input), sha256(self.expected))))

    @property
    def size(self) -> int:
        return len(self.input) + len(self.output) + len(self.expected)

    @property
    def stdin(self) -> str:
        fields = {"input": self.input, "output": self.output, "expected": self.expected}
        return json.dumps(fields)


# Text of checkers


@cache
def _harness_text(name: str) -> str:
    return files("services.judge.harness").joinpath(name).read_text(encoding="utf-8")


# Calls


def _limited(task: Task) -> Task:
    """Return the task with the limits of a checker: those of an answer, and at least ours."""
    limits = task.limits.model_copy(
        update={
            "timeout": max(task.limits.timeout, _SECONDS),
            "memory_limit_mb": max(task.limits.memory_limit_mb, _MEMORY_MB),
        }
    )
    settings = task.settings.model_copy(
        update={
            "language": "python",
            "max_timeouts": _MOST_STALLS,
            "max_output_mb": 1,
            "compile_timeout": _COMPILE_SECONDS,
        }
    )
    return replace(task, limits=limits, settings=settings)


async def _compile(task: Task, text: str) -> bytes | CheckerFailedError:
    """Compile a checker in the sandbox; returns the compressed program, or its fault.

    Raises:
        CheckerFailedError: There is no compiler.
        SandboxUnavailableError: The sandbox gave no usable response.
    """
    settings = task.settings.model_copy(update={"language": "cpp", "max_output_mb": 64})
    compiling = replace(task, settings=settings)
    try:
        run = await calls.run_harness(compiling, text, [""])
    except SandboxUnavailableError as error:
        if error.failures[-1].kind == FailureKind.COMPILER:
            raise CheckerFailedError(CheckerFault.NO_COMPILER, str(error)) from None
        raise
    if run.compile_timeout:  # perhaps because of load, so it is not kept
        raise CheckerFailedError(CheckerFault.NOT_COMPILED, "the compiler takes too long")
    if run.compile_error is not None:
        return CheckerFailedError(CheckerFault.NOT_COMPILED, run.compile_error)
    case = run.cases.get(0)
    if case is None or case.exit_code != 0 or not case.stdout.startswith(_ELF):
        said = "the compiled program was not returned" + (f": {case.stderr}" if case else "")
        raise CheckerFailedError(CheckerFault.CRASHED, said)
    return zlib.compress(case.stdout, 6)


async def _run(
    task: Task, program: str, cases: Sequence[_Case]
) -> list[_Report | CheckerFailedError]:
    """Run the checker on all cases; what load may have stopped runs again by itself.

    Raises:
        SandboxUnavailableError: The sandbox gave no usable response.
    """
    size = sum(case.size for case in cases)
    inputs = await compute(lambda: [case.stdin for case in cases], size)
    run = await calls.run_harness(task, program, inputs)
    found: dict[int, CaseRun] = dict(run.cases)
    doubtful = [i for i in range(len(cases)) if i not in found or _stopped(found[i])]
    if sum(case.limit == "cpu" for case in found.values()) >= _MOST_STALLS:
        rest = CheckerFailedError(CheckerFault.TIMED_OUT)  # it was not asked about the others
        return [_parse(found[i]) if i in found else rest for i in range(len(cases))]
    if doubtful:
        again = await calls.run_harness(
            replace(task, alone=True), program, [inputs[i] for i in doubtful]
        )
        found |= {doubtful[i]: case for i, case in again.cases.items()}
    return [_parse(found.get(i)) for i in range(len(cases))]


def _stopped(case: CaseRun) -> bool:
    """Whether something else than the checker itself may have ended it."""
    return case.limit == "wall" or (case.limit is None and case.exit_code == -9)


def _parse(case: CaseRun | None) -> _Report | CheckerFailedError:
    if case is None:
        return CheckerFailedError(CheckerFault.NO_RESULT)
    if case.limit in ("cpu", "wall"):
        return CheckerFailedError(CheckerFault.TIMED_OUT)
    if case.limit is not None:
        return CheckerFailedError(CheckerFault.CRASHED, f"its {case.limit} limit")
    if case.stdout != _STARTED:
        return CheckerFailedError(CheckerFault.NO_RESULT, case.stderr)
    try:
        return _Report.of(case.exit_code, case.stderr.strip()[:_SHOWN])
    except CheckerFailedError as error:
        return error


def _on_output(report: _Report | CheckerFailedError) -> _Report:
    """Return the report on an answer's output; the checker has accepted the expected one."""
    if isinstance(report, CheckerFailedError):
        return _Report(_Outcome.WRONG, str(report))
    return report


def _judged(case: CaseOutcome, report: _Report, expected: _Report) -> CaseOutcome:
    if report.passes(expected):
        return case
    said = f"checker: {report.comment}" if report.comment else ""
    stderr = "\n".join(text for text in (case.stderr, said) if text)
    return replace(case, code=CaseCode.WRONG_ANSWER, stderr=stderr)
