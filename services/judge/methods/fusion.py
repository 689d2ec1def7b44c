"""Calls of SandboxFusion's own API: verl's reward scoring, the data-set API, programs of tools.

Limits are wall-clock seconds.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from string import Template
from typing import Any

from services.judge.calls import Method, Task
from services.judge.methods.stdio import IMPORTS
from services.judge.sandbox import Attempts, SandboxClient, SandboxUnavailableError
from services.judge.verdict import (
    CaseOutcome,
    Compiling,
    Lateness,
    Outcomes,
    failure_detail,
    last_line,
    wall_clock_lateness,
)
from shared.checkers import Checker, exact
from shared.config import SandboxConfig
from shared.errors import ConfigError, ServiceError
from shared.extraction import extract_verl
from shared.harness.sandbox_api import (
    EvalTest,
    RunCodeRequest,
    RunCodeResponse,
    SubmitConfig,
    SubmitRequest,
)
from shared.programs import Program, ProgramResult, ProgramStatus, cut_output
from shared.schemas import (
    GroundTruth,
    HumanEvalTests,
    InfraFailure,
    ProgramTests,
    SandboxFusionTests,
    StdioTests,
)
from shared.statuses import CaseCode, FailureKind, JudgeMethod, VerdictDetail

# Concurrent calls of one completion, where each case is a separate call.
_CALLS_AT_ONCE = 2
# Cases of a problem whose number only the server knows, for the time that a call may take.
_MOST_CASES = 300
# Cases of one submit that SandboxFusion runs at once (its dataset.max_runner_concurrency).
_CASES_AT_ONCE = 3

_CALL = Template(
    """\
import traceback
$imports

$answer

def _plumbline_call():
    lines = sys.stdin.read()
    try:
        arguments = [json.loads(line) for line in lines.split("\\n")] if lines.strip() else []
    except json.JSONDecodeError as error:
        sys.stderr.write(f"arguments are not JSON: {error}\\n")
        return
    try:
        function = None
        if $name in globals():
            function = globals()[$name]
        elif "Solution" in globals():
            function = getattr(globals()["Solution"](), $name)
        if not function:
            sys.stderr.write("no function or method " + $name + "\\n")
            return
        result = function(*arguments)
    except Exception:
        sys.stderr.write(traceback.format_exc())
        return
    as_json = isinstance(result, (dict, list, tuple, bool)) or result is None
    print(json.dumps(result) if as_json else str(result))

if __name__ == "__main__":
    _plumbline_call()
"""
)


def single_outcome(
    response: RunCodeResponse,
    stdin: str,
    expected: str,
    passes: Checker,
    *,
    alone: bool = False,
) -> CaseOutcome:
    """Convert the response to a call for one case; the result code follows verl's rules."""
    compiled, run = response.compile_result, response.run_result
    code, detail = _code(response, expected, passes)
    shown = compiled if code is CaseCode.COMPILE_ERROR else run
    return CaseOutcome(
        code=code,
        duration=(run and run.execution_time) or 0.0,
        detail=detail,
        input=stdin,
        expected=expected,
        actual=shown.stdout if shown else None,
        stderr=shown.stderr if shown else None,
        lateness=wall_clock_lateness(code is CaseCode.TIMEOUT, alone=alone),
        exit_code=run.return_code if run else None,
        compiling=Compiling(compiled.execution_time, compiled.stderr) if compiled else None,
    )


def _code(
    response: RunCodeResponse, expected: str, passes: Checker
) -> tuple[CaseCode, VerdictDetail | str | None]:
    compiled, run = response.compile_result, response.run_result
    if response.status == "Failed":
        if compiled and (compiled.status != "Finished" or compiled.return_code != 0):
            late = compiled.status == "TimeLimitExceeded"
            return CaseCode.COMPILE_ERROR, VerdictDetail.COMPILE_TIMEOUT if late else None
        if run is None:
            return CaseCode.API_ERROR, VerdictDetail.NO_RUN_RESULT
        if run.status == "TimeLimitExceeded":
            return CaseCode.TIMEOUT, None
        if run.status == "Finished" and run.return_code == 0:
            return CaseCode.API_ERROR, VerdictDetail.NO_FAILURE_REASON
        return CaseCode.RUNTIME_ERROR, failure_detail(run.return_code, run.stderr)
    if run is None or run.status != "Finished":
        return CaseCode.API_ERROR, VerdictDetail.UNFINISHED_RUN
    passed = passes(run.stdout or "", expected)
    return (CaseCode.PASSED if passed else CaseCode.WRONG_ANSWER), None


class ComputeScoreMethod(Method):
    """verl's reward scoring: one ``/run_code`` per test case by verl's rules.

    The rules are those of ``verl.utils.reward_score.sandbox_fusion`` 0.9.1: code extraction, output
    comparison (equal except for trailing newlines), result codes, and that a compile error in one
    case applies to all later ones. For calls, a line of input is one JSON argument. The result is
    printed as JSON if it is a container, a bool or ``None``, otherwise as text. An exception in the
    function prints no result and ends with exit code 0, which is a wrong answer.

    verl has no syntax error for Python and reports a runtime error instead; the cases keep verl's
    code, and the sample's final status is ``syntax_error`` if the interpreter could not compile the
    program.
    """

    name = JudgeMethod.COMPUTE_SCORE
    checker = "exact"

    def __init__(self, task: Task, tests: StdioTests) -> None:
        self.extraction = extract_verl(task.completion)
        self._tests = tests
        # verl puts two newlines between the program and an (absent) assert statement.
        self._program = self.extraction.code + "\n\n"
        if tests.fn_name:
            name = repr(tests.fn_name)
            self._program = _CALL.substitute(imports=IMPORTS, answer=self._program, name=name)

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        tests, limits = self._tests, task.limits
        slots = asyncio.Semaphore(1 if task.alone else _CALLS_AT_ONCE)

        async def run(place: int) -> CaseOutcome:
            stdin, expected = tests.inputs[place], tests.outputs[place]
            request = RunCodeRequest(
                code=self._program,
                language=task.settings.language,
                stdin=stdin,
                compile_timeout=limits.timeout,
                run_timeout=limits.timeout,
                memory_limit_MB=limits.memory_limit_mb,
            )
            async with slots:
                response = await task.sandbox.run_code(request, task.attempts, alone=task.alone)
            return single_outcome(response, stdin, expected, exact, alone=task.alone)

        try:
            async with asyncio.TaskGroup() as group:
                runs = {place: group.create_task(run(place)) for place in cases}
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return {place: outcome.result() for place, outcome in runs.items()}

    async def check(self, task: Task, outcomes: Outcomes) -> Outcomes:
        error = CaseCode.COMPILE_ERROR
        first = min((i for i, case in outcomes.items() if case.code is error), default=None)
        return {
            place: case
            if first is None or place <= first
            else CaseOutcome(error, case.duration, case.detail, case.input, case.expected)
            for place, case in outcomes.items()
        }


class SubmitMethod(Method):
    """SandboxFusion's data-set API: one ``/submit`` per completion with the record inline.

    A problem without tests is judged by its id in a data set of the server. SandboxFusion itself
    extracts the code, compares the output and accepts the answer. It does not detect early exits,
    and does not search for the best block.
    """

    name = JudgeMethod.SUBMIT

    def __init__(self, tests: GroundTruth) -> None:
        self.checker = "lines" if isinstance(tests, StdioTests) else "exit_code"
        self.shared_process = not isinstance(tests, StdioTests)
        self._tests = tests

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        tests, timeout = self._tests, task.limits.timeout
        by_id = tests if isinstance(tests, SandboxFusionTests) else None
        name, config = _config(task, tests)
        config.compile_timeout = config.run_timeout = timeout
        request = SubmitRequest(
            dataset=name,  # HumanEval gets the server's own name
            id=by_id.sandbox_id if by_id else 0,
            completion=task.completion,
            config=config,
        )
        rounds = -(-(_MOST_CASES if by_id else tests.cases) // _CASES_AT_ONCE)
        # The limit applies to compiling and to running each case.
        longest = 2 * timeout * rounds
        answer = await task.sandbox.submit(request, longest, task.attempts, alone=task.alone)
        return dict(enumerate(self._outcomes(answer.tests, alone=task.alone)))

    def _outcomes(self, results: Sequence[EvalTest], *, alone: bool) -> list[CaseOutcome]:
        tests = self._tests

        def outcome(result: EvalTest, stdin: str = "", expected: str = "") -> CaseOutcome:
            def passed(*_: str) -> bool:  # SandboxFusion has already compared the output
                return result.passed

            case = single_outcome(result.exec_info, stdin, expected, passed, alone=alone)
            failed = self.shared_process and last_line(case.stderr).startswith("AssertionError")
            if failed and case.code is CaseCode.RUNTIME_ERROR:
                return replace(case, code=CaseCode.WRONG_ANSWER)
            return case

        if isinstance(tests, StdioTests):
            return list(map(outcome, results, tests.inputs, tests.outputs))
        if isinstance(tests, SandboxFusionTests):
            return [outcome(result, *_texts(result)) for result in results]
        # All statements share one run and pass or fail together; the first gets the run's time.
        ran = [outcome(result) for result in results[:1]]
        rest = [replace(c, duration=0.0, lateness=Lateness.IN_TIME, compiling=None) for c in ran]
        return ran + rest * (tests.cases - 1)


def _config(task: Task, tests: GroundTruth) -> tuple[str, SubmitConfig]:
    """Return the data set's name, which selects SandboxFusion's class, and the config."""
    problem = task.problem
    language: Any = task.settings.language
    if isinstance(tests, SandboxFusionTests):
        extra = {"is_freeform": True, "run_all_cases": True, "return_full_case": True}
        return tests.sandbox_dataset, SubmitConfig(language=language, extra=extra)
    if isinstance(tests, StdioTests):
        cases = zip(tests.inputs, tests.outputs, strict=True)
        test = [{"input": {"stdin": i}, "output": {"stdout": o}} for i, o in cases]
        return "plumbline_stdio", SubmitConfig(
            dataset_type="CommonOJDataset",
            language=language,
            extra={"run_all_cases": True},
            provided_data={"id": 0, "content": problem.prompt, "labels": {}, "test": test},
        )
    if isinstance(tests, HumanEvalTests):
        record: dict[str, Any] = {
            "task_id": problem.problem_id,
            "prompt": tests.prompt,
            "entry_point": tests.entry_point,
            "test": tests.test,
            "canonical_solution": "",
        }
        return "humaneval", SubmitConfig(extra={"is_freeform": True}, provided_data=record)
    if isinstance(tests, ProgramTests):
        raise ConfigError("the method submit cannot judge tests of MultiPL-E; use batch")
    record = {
        "id": 0,
        "content": problem.prompt,
        "labels": {"test_setup_code": tests.test_setup_code},
        "test_list": tests.test_list,
    }
    return "mbpp", SubmitConfig(provided_data=record)


def _texts(result: EvalTest) -> tuple[str, str]:
    """Input and expected output of a case, as far as the server reports them."""
    match result.test_info:
        case {"input": {"stdin": str() as stdin}, "output": {"stdout": str() as stdout}}:
            return stdin, stdout
    return "", ""


# Programs of tools

# Statuses of a sandbox that does not know the language, or does not take so large a program.
_REFUSALS = {
    f"http_{status.value}"
    for status in (
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    )
}
_STATUSES = {
    CaseCode.PASSED: ProgramStatus.OK,
    CaseCode.TIMEOUT: ProgramStatus.TIMEOUT,
    CaseCode.COMPILE_ERROR: ProgramStatus.COMPILE_ERROR,
    CaseCode.RUNTIME_ERROR: ProgramStatus.ERROR,
}


class ProgramRefusedError(ServiceError):
    """The sandbox does not accept the request, so that a repetition is useless."""


async def run_program(
    program: Program, limits: SandboxConfig, sandbox: SandboxClient
) -> ProgramResult:
    """Run a program in one call, under the permits that verdicts need as well.

    Raises:
        ProgramRefusedError: The sandbox does not accept it.
        ServiceError: It could not be run.
    """
    request = RunCodeRequest(
        code=program.code,
        language=program.language,
        stdin=program.stdin,
        compile_timeout=program.timeout,
        run_timeout=program.timeout,
        memory_limit_MB=program.memory_limit_mb or limits.memory_limit_mb,
    )
    try:
        response = await sandbox.run_code(request, Attempts())
    except SandboxUnavailableError as error:
        refused = error.failures[-1].kind in _REFUSALS
        raise (ProgramRefusedError if refused else ServiceError)(str(error)) from None
    outcome = single_outcome(response, "", "", lambda *_: True)
    if outcome.code is CaseCode.API_ERROR:
        failure = InfraFailure(kind=FailureKind.UNUSABLE_ANSWER, text=str(outcome.detail))
        raise ServiceError(str(failure))
    no_memory = outcome.detail is VerdictDetail.MEMORY_LIMIT
    stdout, more = cut_output(outcome.actual)
    stderr, more_errors = cut_output(outcome.stderr)
    run = response.run_result or response.compile_result
    return ProgramResult(
        status=ProgramStatus.MEMORY if no_memory else _STATUSES[outcome.code],
        stdout=stdout,
        stderr=stderr,
        exit_code=None if outcome.code is CaseCode.TIMEOUT else outcome.exit_code,
        seconds=(run and run.execution_time) or 0.0,
        truncated=more or more_errors,
    )
