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
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from weakref import WeakKeyDictionary

from services.judge import calls
from services.judge.calls import Task, compute
from services.judge.sandbox import SandboxClient, SandboxUnavailableError, source
from services.judge.verdict import CaseOutcome, Outcomes
from shared.checkers import CheckerFault, CheckerStyle
from shared.harness.wire import CaseRun
from shared.schemas import InfraFailure, StdioTests, sha256
from shared.statuses import CaseCode, FailureKind, VerdictDetail

# Least limits of a checker.
_SECONDS, _MEMORY_MB = 2.0, 1024
# Bytes of an output as it is sent; a request may have about twice as many, and inputs besides.
_MOST_OUTPUT = 24 * 2**20
# Outputs of an answer on which a checker may exceed its time, before it is asked no further.
_MOST_STALLS = 2
_COMPILE_SECONDS = 120.0
_SHOWN = 300
_BINARIES_KEPT, _REPORTS_KEPT = 32, 20_000
_TESTLIB = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]testlib\.h[>"].*$', re.MULTILINE)
_ELF = b"\x7fELF"
_STARTED = b"!"
# Exit codes: testlib's for a wrong answer (also of its form) and, in ``harness/checking.py``, ours.
_WRONG, _POINTS, _PARTIAL = (1, 2, 4, 8), 7, range(50, 251)
_FAULTS: Mapping[int, CheckerFault] = {
    3: CheckerFault.FAILED,
    40: CheckerFault.NOT_COMPILED,
    41: CheckerFault.CRASHED,
}
_SCORE = re.compile(r"points (-?\d+(?:\.\d+)?)")


class CheckerFailedError(SandboxUnavailableError):
    """The problem's checker cannot judge; the answer is not at fault."""

    def __init__(self, fault: CheckerFault, text: str = "") -> None:
        detail = " ".join(text.split())
        if len(detail) > _SHOWN:
            detail = f"{detail[: _SHOWN // 2]} ... {detail[-_SHOWN // 2 :]}"
        shown = f"{fault}: {detail}" if detail else str(fault)
        super().__init__([InfraFailure(kind=FailureKind.CHECKER, text=shown)])
        self.fault = fault


@dataclass(frozen=True, slots=True)
class _Report:
    """Result of the checker for one output; ``points`` have the checker's own scale."""

    accepted: bool
    comment: str
    points: float | None = None


@dataclass(slots=True)
class _Kept:
    """Compiled checkers, and reports on expected outputs, of one pool of sandboxes.

    A binary fits the compiler and the libraries of the pool's sandboxes. What is too much to keep
    is made again when it is needed.
    """

    binaries: dict[str, bytes | CheckerFailedError] = field(default_factory=dict)
    expected: dict[str, _Report] = field(default_factory=dict)
    compiling: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))


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
        """Judge the cases that passed so far; an expected output is judged once per problem.

        Raises:
            CheckerFailedError: The checker cannot judge.
        """
        outcomes, cases = dict(outcomes), Outcomes()
        for place, case in sorted(outcomes.items()):
            if case.code is CaseCode.PASSED:
                cases[place] = case
                if len(json.dumps(case.actual or "")) > _MOST_OUTPUT:
                    code, detail = CaseCode.RUNTIME_ERROR, VerdictDetail.OUTPUT_LIMIT
                    outcomes[place] = replace(cases.pop(place), code=code, detail=detail)
        if not cases:
            return outcomes
        task = _limited(task)
        kept = _KEPT.setdefault(task.sandbox, _Kept())
        if len(kept.expected) > _REPORTS_KEPT:
            kept.expected.clear()
        program = await self._program(task, kept)
        checker = sha256(program)

        keys: dict[int, str] = {}
        expected: dict[str, _Report] = {}  # a copy, because others may clear what is kept
        new: dict[str, CaseOutcome] = {}

        def prepare() -> list[str]:
            for place, case in cases.items():
                texts = (checker, case.input or "", case.expected or "")
                key = keys[place] = sha256("\0".join(map(sha256, texts)))
                if report := kept.expected.get(key):
                    expected[key] = report
                else:
                    new[key] = case
            inputs = [_stdin(case, case.expected) for case in new.values()]
            return inputs + [_stdin(case, case.actual) for case in cases.values()]

        texts = (text for c in cases.values() for text in (c.input, c.actual, c.expected) if text)
        inputs = await compute(prepare, 3 * sum(map(len, texts)))
        reports = await _run(task, program, inputs)
        for key, report in zip(new, reports, strict=False):
            if isinstance(report, CheckerFailedError):
                raise report
            if not report.accepted and report.points is None:
                raise CheckerFailedError(CheckerFault.REJECTS_EXPECTED, report.comment)
            expected[key] = kept.expected[key] = report
        for (place, case), report in zip(cases.items(), reports[len(new) :], strict=True):
            outcomes[place] = _judged(case, report, expected[keys[place]])
        return outcomes

    async def _program(self, task: Task, kept: _Kept) -> str:
        checker = self.source
        if self.style is CheckerStyle.BINARY:
            text = self._cpp()
            key = sha256(text)
            async with kept.compiling[key]:
                if (binary := kept.binaries.get(key)) is None:
                    binary = await _compile(task, text)
                    if len(kept.binaries) >= _BINARIES_KEPT:
                        kept.binaries.clear()
                    kept.binaries[key] = binary
            kept.compiling.pop(key, None)
            if isinstance(binary, CheckerFailedError):
                raise binary.with_traceback(None)
            checker = base64.b64encode(binary).decode()
        return f"_STYLE = {self.style.value!r}\n_CHECKER = {checker!r}\n{source('checking')}"

    def _cpp(self) -> str:
        """The source with the header in place: a sandbox's compiler gets one file."""
        folder = files("services.judge.harness")
        header = folder.joinpath("testlib.h").read_text(encoding="utf-8")
        here = f'#line 1 "testlib.h"\n{header}\n#line 2 "checker.cpp"'
        start = folder.joinpath("checker_start.cpp").read_text(encoding="utf-8")
        return f"{_TESTLIB.sub(lambda _: here, self.source, count=1)}\n{start}"


def _stdin(case: CaseOutcome, output: str | None) -> str:
    texts = {"input": case.input, "output": output, "expected": case.expected}
    return json.dumps({name: text or "" for name, text in texts.items()})


def _judged(
    case: CaseOutcome, report: _Report | CheckerFailedError, expected: _Report
) -> CaseOutcome:
    """Return the outcome of a case, whose expected output the checker has accepted."""
    if isinstance(report, CheckerFailedError):
        report = _Report(False, str(report))
    passes = report.accepted
    if report.points is not None and expected.points is not None:  # as many as it could have
        passes = report.points >= expected.points
    if passes:
        return case
    comment = f"checker: {report.comment}" if report.comment else ""
    stderr = "\n".join(text for text in (case.stderr, comment) if text)
    return replace(case, code=CaseCode.WRONG_ANSWER, stderr=stderr)


# Calls


def _limited(task: Task) -> Task:
    """Return the task with the limits of a checker: those of an answer, and at least ours."""
    limits = {
        "timeout": max(task.limits.timeout, _SECONDS),
        "memory_limit_mb": max(task.limits.memory_limit_mb, _MEMORY_MB),
    }
    settings = {
        "max_timeouts": _MOST_STALLS,
        "max_output_mb": 1,
        "compile_timeout": _COMPILE_SECONDS,
    }
    return replace(
        task,
        limits=task.limits.model_copy(update=limits),
        settings=task.settings.model_copy(update=settings),
    )


async def _compile(task: Task, text: str) -> bytes | CheckerFailedError:
    """Compile a checker in the sandbox; returns the compressed program, or its fault.

    Raises:
        CheckerFailedError: There is no compiler.
    """
    compiling = replace(task, settings=task.settings.model_copy(update={"max_output_mb": 64}))
    try:
        run = await calls.run_harness(compiling, text, [""], calls.raw, "cpp")
    except SandboxUnavailableError as error:
        if error.failures[-1].kind == FailureKind.COMPILER:
            raise CheckerFailedError(CheckerFault.NO_COMPILER, str(error)) from None
        raise
    if run.rejected and run.rejected.detail is VerdictDetail.COMPILE_TIMEOUT:
        # Perhaps because of load, so it is not kept.
        raise CheckerFailedError(CheckerFault.NOT_COMPILED, "the compiler takes too long")
    if run.rejected:
        return CheckerFailedError(CheckerFault.NOT_COMPILED, run.rejected.stderr or "")
    case = run.cases.get(0)
    if case is None or case.exit_code != 0 or not case.stdout.startswith(_ELF):
        stderr = f": {case.stderr}" if case else ""
        message = f"the compiled program was not returned{stderr}"
        raise CheckerFailedError(CheckerFault.CRASHED, message)
    return zlib.compress(case.stdout, 6)


async def _run(
    task: Task, program: str, inputs: Sequence[str]
) -> list[_Report | CheckerFailedError]:
    """Run the checker on all inputs; what load may have stopped runs again by itself."""
    run = await calls.run_harness(task, program, inputs, calls.raw, "python")
    cases = run.cases
    if sum(case.limit == "cpu" for case in cases.values()) >= _MOST_STALLS:
        rest = CheckerFailedError(CheckerFault.TIMED_OUT)  # the others were not judged
        return [_report(cases[i]) if i in cases else rest for i in range(len(inputs))]
    doubtful = [i for i in range(len(inputs)) if i not in cases or _stopped(cases[i])]
    if doubtful:
        alone, left = replace(task, alone=True), [inputs[i] for i in doubtful]
        again = await calls.run_harness(alone, program, left, calls.raw, "python")
        cases |= {doubtful[i]: case for i, case in again.cases.items()}
    return [_report(cases.get(i)) for i in range(len(inputs))]


def _stopped(case: CaseRun) -> bool:
    """Whether something else than the checker itself may have ended it."""
    return case.limit == "wall" or (case.limit is None and case.exit_code == -9)


def _report(case: CaseRun | None) -> _Report | CheckerFailedError:
    if case is None:
        return CheckerFailedError(CheckerFault.NO_RESULT)
    if case.limit in ("cpu", "wall"):
        return CheckerFailedError(CheckerFault.TIMED_OUT)
    if case.limit is not None:
        return CheckerFailedError(CheckerFault.CRASHED, f"its {case.limit} limit")
    if case.stdout != _STARTED:
        return CheckerFailedError(CheckerFault.NO_RESULT, case.stderr)
    code, comment = case.exit_code, case.stderr.strip()[:_SHOWN]
    if code == 0 or code in _WRONG:
        return _Report(code == 0, comment)
    if code == _POINTS and (score := _SCORE.match(comment)):
        return _Report(False, comment, float(score[1]))
    if code in _PARTIAL:
        return _Report(False, comment, float(code - _PARTIAL.start))
    if code in _FAULTS:
        return CheckerFailedError(_FAULTS[code], comment)
    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
    return CheckerFailedError(CheckerFault.CRASHED, f"{ended} {comment}")
