"""What the methods for standard input and output have in common: comparing, and codes of a case."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from services.judge.harness import source
from services.judge.methods.base import Task
from services.judge.outcome import CaseOutcome, signal_name
from services.judge.sandbox import RunCode, RunCodeResponse, SandboxUnavailableError
from shared.checkers import Checker, get_checker
from shared.schemas import StdioTests, sha256
from shared.statuses import CaseCode

Passes = Callable[[str, str], bool]


@dataclass(frozen=True)
class CaseChecker:
    """How output is compared: by one of our checkers, or by the problem's own program.

    The problem's own, Python source that defines ``check(input, output, expected)``, runs in the
    sandbox once all outputs are there; until then what ended well counts as passed.
    """

    name: str
    source: str | None
    passes: Checker

    @classmethod
    def of(cls, task: Task, tests: StdioTests) -> Self:
        if tests.checker_source is not None:
            name = f"python:{sha256(tests.checker_source)[:8]}"
            return cls(name, tests.checker_source, lambda actual, expected: True)
        name = tests.checker or task.settings.checker or "tokens"
        return cls(name, None, get_checker(name))

    async def check(self, task: Task, outcomes: dict[int, CaseOutcome]) -> None:
        """Let the problem's own checker decide on the cases that ended well.

        Raises:
            SandboxUnavailableError: It did not give its verdicts: trouble of the data set's or of
                ours, and not of the answer's.
        """
        places = [p for p, case in outcomes.items() if case.code is CaseCode.PASSED]
        if self.source is None or not places:
            return
        fields = [
            {"input": case.input, "output": case.actual, "expected": case.expected}
            for case in (outcomes[place] for place in places)
        ]
        request = RunCode(
            code=f"{self.source}\n\n{source('checking')}",
            language="python",
            stdin=json.dumps(fields),
            compile_timeout=10,
            run_timeout=task.limits.timeout * max(4, len(places)),
            memory_limit_mb=-1,
            fetch_files=("verdicts",),
        )
        response = await task.sandbox.run_code(request, task.attempts, alone=task.alone)
        verdicts = _checked(response)
        if len(verdicts) != len(places):
            said = response.run_result.stderr if response.run_result else None
            raise SandboxUnavailableError([f"the problem's checker failed: {(said or '')[-300:]}"])
        for place, passed in zip(places, verdicts, strict=True):
            if not passed:
                outcomes[place] = replace(outcomes[place], code=CaseCode.WRONG_ANSWER)


def _checked(response: RunCodeResponse) -> list[bool]:
    return [mark == "1" for mark in response.file("verdicts").decode("ascii", "replace")]


def single_outcome(
    response: RunCodeResponse, stdin: str, expected: str, passes: Passes
) -> CaseOutcome:
    """Give the answer of a call for one case the code that verl gives it."""
    compiled, run = response.compile_result, response.run_result
    duration = sum(r.execution_time or 0.0 for r in (compiled, run) if r)
    code, detail = _code(response, expected, passes)
    shown = compiled if code is CaseCode.COMPILE_ERROR else run
    return CaseOutcome(
        code=code,
        duration=duration,
        detail=detail,
        input=stdin,
        expected=expected,
        actual=shown.stdout if shown else None,
        stderr=shown.stderr if shown else None,
    )


def is_syntax_error(case: CaseOutcome) -> bool:
    """Whether the Python interpreter could not compile the program at all.

    It says so without a traceback's header, which a SyntaxError raised at run time (by exec, or an
    import) has.
    """
    stderr = case.stderr or ""
    last = stderr.rstrip().rsplit("\n", 1)[-1]
    return (
        case.code is CaseCode.RUNTIME_ERROR
        and not case.actual
        and last.startswith(("SyntaxError: ", "IndentationError: ", "TabError: "))
        and "Traceback (most recent call last)" not in stderr
    )


def failure_detail(exit_code: int | None, stderr: str | None) -> str | None:
    """What a failed run says of its cause: a signal's name, or the memory limit."""
    if exit_code is not None and exit_code < 0:
        return signal_name(exit_code)
    last = (stderr or "").rstrip().rsplit("\n", 1)[-1]
    return "memory_limit" if last.startswith(("MemoryError", "std::bad_alloc")) else None


def _code(response: RunCodeResponse, expected: str, passes: Passes) -> tuple[CaseCode, str | None]:
    compiled, run = response.compile_result, response.run_result
    if response.status == "Failed":
        if compiled and (compiled.status != "Finished" or compiled.return_code != 0):
            late = compiled.status == "TimeLimitExceeded"
            return CaseCode.COMPILE_ERROR, "compile_timeout" if late else None
        if run is None:
            return CaseCode.API_ERROR, "no run result"
        if run.status == "TimeLimitExceeded":
            return CaseCode.TIMEOUT, None
        if run.status == "Finished" and run.return_code == 0:
            return CaseCode.API_ERROR, "failed without a reason"
        return CaseCode.RUNTIME_ERROR, failure_detail(run.return_code, run.stderr)
    if run is None or run.status != "Finished":
        return CaseCode.API_ERROR, "success without a finished run"
    passed = passes(run.stdout or "", expected)
    return (CaseCode.PASSED if passed else CaseCode.WRONG_ANSWER), None
