"""Standard input and output, one ``/run_code`` per test case, by verl's rules.

The rules are those of ``verl.utils.reward_score.sandbox_fusion`` 0.9.1: which code is taken from
the completion, how output is compared (equal but for trailing newlines), the result codes, and that
a compile error in one case holds for all later ones. The number of passing cases is what a GRPO
reward would be computed from. Beyond verl's rules, which know no syntax error in Python (there it
is a runtime error), the sample's final status says ``syntax_error`` where the interpreter could not
compile the program; the cases keep verl's code.
"""

import asyncio
import re
import signal
from collections.abc import Sequence

from services.judge.methods.call_wrapper import wrap_call
from services.judge.outcome import CaseOutcome, Judgement
from services.judge.sandbox import Attempts, CommandResult, RunCode, RunCodeResponse, SandboxClient
from shared.checkers import exact
from shared.config import Config
from shared.extraction import extract_verl
from shared.schemas import StdioTests
from shared.statuses import CaseCode, FinalStatus

NAME = "compute_score"
CHECKER = "exact"

# A program that CPython cannot compile is reported without a traceback's header, which a
# SyntaxError raised at run time (by exec, or an import) has.
_SYNTAX_ERROR = re.compile(r"^\s*File .*\n(?:.*\n)*?(?:Syntax|Indentation|Tab)Error: .*\s*\Z")


async def judge(
    sandbox: SandboxClient,
    config: Config,
    completion: str,
    tests: StdioTests,
    attempts: Attempts,
) -> Judgement:
    """Run every case of ``tests``.

    Raises:
        SandboxUnavailableError: The sandbox gave no usable answer for a case.
    """
    total = len(tests.inputs)
    extraction = extract_verl(completion)
    if not extraction.found:
        return Judgement(
            NAME, CHECKER, total, status=FinalStatus.SYNTAX_ERROR, detail=extraction.reason
        )
    runner = _CaseRunner(sandbox, config, extraction.code, tests, attempts)
    first = await runner.run(0)
    if is_syntax_error(first):
        # The same program cannot compile for another input either; the runs would tell nothing.
        cases = [first, *(_same_failure(first, tests, i) for i in range(1, total))]
        return Judgement(NAME, CHECKER, total, cases, status=FinalStatus.SYNTAX_ERROR)
    cases = [first, *await runner.run_all(range(1, total))]
    return Judgement(NAME, CHECKER, total, _spread_compile_error(cases))


class _CaseRunner:
    def __init__(
        self,
        sandbox: SandboxClient,
        config: Config,
        code: str,
        tests: StdioTests,
        attempts: Attempts,
    ) -> None:
        self._sandbox = sandbox
        self._config = config
        # verl puts two newlines between the program and an (absent) assert statement.
        self._code = wrap_call(code + "\n\n", tests.fn_name) if tests.fn_name else code + "\n\n"
        self._tests = tests
        self._attempts = attempts

    async def run(self, index: int) -> CaseOutcome:
        limits = self._config.sandbox
        request = RunCode(
            code=self._code,
            language=self._config.judge.language,
            stdin=self._tests.inputs[index],
            compile_timeout=limits.timeout,
            run_timeout=limits.timeout,
            memory_limit_mb=limits.memory_limit_mb,
        )
        answer = await self._sandbox.run_code(request, self._attempts)
        return case_outcome(answer, self._tests.inputs[index], self._tests.outputs[index])

    async def run_all(self, indices: Sequence[int]) -> list[CaseOutcome]:
        slots = asyncio.Semaphore(self._config.judge.case_concurrency)

        async def run(index: int) -> CaseOutcome:
            async with slots:
                return await self.run(index)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(run(index)) for index in indices]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]


def case_outcome(answer: RunCodeResponse, stdin: str, expected: str) -> CaseOutcome:
    """Give one answer of the sandbox the code that verl gives it."""
    compiled, run = answer.compile_result, answer.run_result
    duration = sum(r.execution_time or 0.0 for r in (compiled, run) if r)
    code, detail = _code(answer, expected)
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
    """Whether the Python interpreter could not compile the program at all."""
    return (
        case.code is CaseCode.RUNTIME_ERROR
        and not case.actual
        and len(case.stderr or "") < 20_000
        and _SYNTAX_ERROR.match(case.stderr or "") is not None
    )


def failure_detail(run: CommandResult) -> str | None:
    """What a failed run says of its cause: a signal's name, or the memory limit."""
    if run.return_code is not None and run.return_code < 0:
        try:
            return signal.Signals(-run.return_code).name
        except ValueError:
            return f"signal {-run.return_code}"
    last = (run.stderr or "").rstrip().rsplit("\n", 1)[-1]
    return "memory_limit" if last.startswith("MemoryError") else None


def _code(answer: RunCodeResponse, expected: str) -> tuple[CaseCode, str | None]:
    compiled, run = answer.compile_result, answer.run_result
    if answer.status == "Failed":
        if compiled and (compiled.status != "Finished" or compiled.return_code != 0):
            late = compiled.status == "TimeLimitExceeded"
            return CaseCode.COMPILE_ERROR, "compile_timeout" if late else None
        if run is None:
            return CaseCode.API_ERROR, "no run result"
        if run.status == "TimeLimitExceeded":
            return CaseCode.TIMEOUT, None
        return CaseCode.RUNTIME_ERROR, failure_detail(run)
    if run is None or run.status != "Finished":
        return CaseCode.API_ERROR, "success without a finished run"
    passed = exact(run.stdout or "", expected)
    return (CaseCode.PASSED if passed else CaseCode.WRONG_ANSWER), None


def _same_failure(first: CaseOutcome, tests: StdioTests, index: int) -> CaseOutcome:
    return CaseOutcome(first.code, 0.0, first.detail, tests.inputs[index], tests.outputs[index])


def _spread_compile_error(cases: list[CaseOutcome]) -> list[CaseOutcome]:
    codes = [case.code for case in cases]
    if CaseCode.COMPILE_ERROR not in codes:
        return cases
    first = codes.index(CaseCode.COMPILE_ERROR)
    rest = [
        CaseOutcome(CaseCode.COMPILE_ERROR, c.duration, c.detail, c.input, c.expected)
        for c in cases[first + 1 :]
    ]
    return [*cases[: first + 1], *rest]
