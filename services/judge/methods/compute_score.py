"""verl's reward scoring: one ``/run_code`` per test case by verl's rules, or by verl itself.

The rules are those of ``verl.utils.reward_score.sandbox_fusion`` 0.9.1: code extraction, output
comparison (equal except for trailing newlines), result codes, and that a compile error in one case
applies to all later ones. A GRPO reward would be computed from the number of passing cases. verl
has no syntax error for Python and reports a runtime error instead; the cases keep verl's code, and
the sample's final status is ``syntax_error`` if the interpreter could not compile the program.
Limits are wall-clock seconds.
"""

import asyncio
import importlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from services.judge import calls
from services.judge.methods.base import Method, Task
from services.judge.programs import wrap_call
from services.judge.sandbox import SandboxUnavailableError
from services.judge.verdict import CaseOutcome, Compiling, Outcomes
from shared.checkers import exact
from shared.errors import ConfigError
from shared.extraction import extract_verl
from shared.schemas import InfraFailure, StdioTests
from shared.statuses import CaseCode, FailureKind, JudgeMethod, VerdictDetail

_SCORER = "verl.utils.reward_score.sandbox_fusion"
# Any other status is a failure of the sandbox, or of verl while reading its response.
_VERL_CODES = {
    "success": CaseCode.PASSED,
    "wrong_answer": CaseCode.WRONG_ANSWER,
    "runtime_error": CaseCode.RUNTIME_ERROR,
    "timeout": CaseCode.TIMEOUT,
    "compile_error": CaseCode.COMPILE_ERROR,
    "compile_timeout": CaseCode.COMPILE_ERROR,
    "compile_error_skipped": CaseCode.COMPILE_ERROR,
}
_Metadata = Mapping[str, Any]  # of one case, as reported by verl


class ComputeScoreMethod(Method):
    name = JudgeMethod.COMPUTE_SCORE
    checker = "exact"

    def __init__(self, task: Task, tests: StdioTests) -> None:
        self.extraction = extract_verl(task.completion)
        self._tests = tests
        # verl puts two newlines between the program and an (absent) assert statement.
        program = self.extraction.code + "\n\n"
        if tests.fn_name:
            program = wrap_call(program, tests.fn_name)
        self._program = program

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        tests = self._tests
        responses = await calls.run_singles(task, self._program, tests.inputs, cases)
        return {
            place: calls.single_outcome(
                response, tests.inputs[place], tests.outputs[place], exact, alone=task.alone
            )
            for place, response in responses.items()
        }


class VerlNativeMethod(Method):
    """verl's own scorer (``judge.verl_native=true``), in a thread, one case after another.

    verl counts a case as failed if the sandbox sends no response; here the case and its sample are
    ``api_error``. verl cannot be interrupted: a cancelled call runs to completion in its thread.
    It retries only a 504, and its time-outs are not confirmed.
    """

    name = JudgeMethod.VERL_NATIVE
    checker = "exact"

    def __init__(self, task: Task, tests: StdioTests) -> None:
        """Import verl.

        Raises:
            ConfigError: verl is not installed.
        """
        self._compute_score = _import_scorer()
        self.extraction = extract_verl(task.completion)
        self._tests = tests

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        tests = self._tests
        async with task.sandbox.pool.permit(exclusive=task.alone) as permit:
            _, found = await asyncio.to_thread(
                self._compute_score,
                f"{task.sandbox.url_with_credentials(permit.url)}/run_code",
                threading.Semaphore(1),
                task.limits.memory_limit_mb,
                task.completion,
                tests.model_dump(include={"inputs", "outputs", "fn_name"}, exclude_none=True),
                timeout=task.limits.timeout,
            )
        if len(found) != tests.cases or not all("status" in case for case in found):
            reason = str(found[0].get("error")) if found else "no result"
            raise SandboxUnavailableError([InfraFailure(kind=FailureKind.VERL, text=reason)])
        # verl runs all cases, whichever are asked for.
        outcomes = {place: _outcome(found[place], tests, place) for place in cases}
        task.attempts.requests += len(found)
        task.attempts.failures += [
            InfraFailure.parse(case.detail or "")
            for case in outcomes.values()
            if case.code is CaseCode.API_ERROR
        ]
        return outcomes


class _ComputeScore(Protocol):
    def __call__(
        self,
        sandbox_fusion_url: str,
        concurrent_semaphore: threading.Semaphore,
        memory_limit_mb: int,
        completion: str,
        test_cases: Mapping[str, Any],
        *,
        timeout: float,
    ) -> tuple[float, list[dict[str, Any]]]: ...


def _import_scorer() -> _ComputeScore:
    try:
        return cast(_ComputeScore, importlib.import_module(_SCORER).compute_score)
    except ImportError as error:
        raise ConfigError(
            f"judge.verl_native needs verl, which cannot be imported ({error}); "
            "install verl for the judge workers, or leave judge.verl_native off"
        ) from None


def _outcome(case: _Metadata, tests: StdioTests, place: int) -> CaseOutcome:
    code = _VERL_CODES.get(case["status"], CaseCode.API_ERROR)
    compiling = code is CaseCode.COMPILE_ERROR
    return CaseOutcome(
        code=code,
        duration=sum(case.get(key) or 0.0 for key in ("compile_duration", "duration")),
        detail=_detail(case, code),
        input=tests.inputs[place],
        expected=tests.outputs[place],
        actual=case.get("stdout"),
        stderr=case.get("compile_stderr" if compiling else "stderr"),
        exit_code=case.get("exit_code"),
        compiling=Compiling(case.get("compile_duration"), case.get("compile_stderr"), within=True),
    )


def _detail(case: _Metadata, code: CaseCode) -> VerdictDetail | str | None:
    if code is CaseCode.API_ERROR:
        return str(case.get("api_request_error") or case["status"])
    late = case["status"] == "compile_timeout"
    return VerdictDetail.COMPILE_TIMEOUT if late else None
