"""``judge.verl_native=true``: verl's own scorer, for whoever trusts nothing but the original.

The rules are those of ``compute_score``. Beyond verl, which counts a case that its sandbox gave no
answer for as a failed one, such a case is ``api_error`` here too, and so is its sample.
"""

import asyncio
import importlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from services.judge.methods.base import Task
from services.judge.outcome import CaseOutcome, Judgement
from shared.errors import ConfigError
from shared.schemas import StdioTests
from shared.statuses import CaseCode, FinalStatus

NAME = "verl_native"
CHECKER = "exact"
_SCORER = "verl.utils.reward_score.sandbox_fusion"

# A status that is not here is trouble of the sandbox, or of verl's with its answer.
_CODES = {
    "success": CaseCode.PASSED,
    "wrong_answer": CaseCode.WRONG_ANSWER,
    "runtime_error": CaseCode.RUNTIME_ERROR,
    "timeout": CaseCode.TIMEOUT,
    "compile_error": CaseCode.COMPILE_ERROR,
    "compile_timeout": CaseCode.COMPILE_ERROR,
    "compile_error_skipped": CaseCode.COMPILE_ERROR,
}
_Cases = Sequence[Mapping[str, Any]]


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


async def judge(url: str, task: Task, tests: StdioTests) -> Judgement:
    """Have verl score one answer, in a thread, case after case: the caller has one permit.

    verl cannot be interrupted: a cancelled call still runs to its end in its thread. What it asks
    is asked once, but for what a gateway answers with 504.

    Args:
        url: The base URL of the sandbox.
        task: A completion in Python.
        tests: Its problem's.

    Raises:
        ConfigError: verl is not installed.
    """
    compute_score = _compute_score()
    _, cases = await asyncio.to_thread(
        compute_score,
        f"{url}/run_code",
        threading.Semaphore(1),
        task.limits.memory_limit_mb,
        task.completion,
        tests.model_dump(include={"inputs", "outputs", "fn_name"}, exclude_none=True),
        timeout=task.limits.timeout,
    )
    judgement = _judgement(cases, tests)
    task.attempts.requests += len(judgement.cases)
    task.attempts.failures += [
        case.detail or "" for case in judgement.cases if case.code is CaseCode.API_ERROR
    ]
    return judgement


def _compute_score() -> _ComputeScore:
    try:
        return cast(_ComputeScore, importlib.import_module(_SCORER).compute_score)
    except ImportError as error:
        raise ConfigError(
            f"judge.verl_native needs verl, which cannot be imported ({error}); "
            "install verl for the judge workers, or leave judge.verl_native off"
        ) from None


def _judgement(cases: _Cases, tests: StdioTests) -> Judgement:
    if len(cases) == tests.cases and all("status" in case for case in cases):
        outcomes = [_outcome(case, tests, place) for place, case in enumerate(cases)]
        return Judgement(NAME, CHECKER, tests.cases, outcomes)
    reason = str(cases[0].get("error")) if cases else "verl gave no result"
    if "missing code block" in reason:
        return Judgement(
            NAME, CHECKER, tests.cases, status=FinalStatus.SYNTAX_ERROR, detail="no_code_block"
        )
    return Judgement(NAME, CHECKER, tests.cases, status=FinalStatus.API_ERROR, detail=reason)


def _outcome(case: Mapping[str, Any], tests: StdioTests, place: int) -> CaseOutcome:
    code = _CODES.get(case["status"], CaseCode.API_ERROR)
    compiling = code is CaseCode.COMPILE_ERROR
    return CaseOutcome(
        code=code,
        duration=sum(case.get(key) or 0.0 for key in ("compile_duration", "duration")),
        detail=_detail(case, code),
        input=tests.inputs[place],
        expected=tests.outputs[place],
        actual=case.get("stdout"),
        stderr=case.get("compile_stderr" if compiling else "stderr"),
    )


def _detail(case: Mapping[str, Any], code: CaseCode) -> str | None:
    if code is CaseCode.API_ERROR:
        return str(case.get("api_request_error") or case["status"])
    return "compile_timeout" if case["status"] == "compile_timeout" else None
