"""Judging of a submit: run its plan, compare the output, limit the size of the response."""

import signal
from collections.abc import Mapping

from services.sandbox.datasets.plans import Plan, ProgramRun, StdioRuns, internal_error
from services.sandbox.runner import Execution
from services.sandbox.schemas import (
    CommandResult,
    EvalResult,
    EvalTest,
    RunCodeResponse,
    RunStatus,
    StdioCase,
    SubmitRequest,
)
from shared.checkers import lines

# Characters that all runs of one submit may print together: the response contains all of them.
OUTPUT_LIMIT = 64 * 1024 * 1024
LONGEST_SHOWN = 1000  # characters per text in the test_info of a passed case
PLACEHOLDER = "..."


async def judge(request: SubmitRequest, plan: Plan, execution: Execution) -> EvalResult:
    """Run the plan and compare the output.

    Raises:
        DatasetError: 500, the sandbox could not run a program.
        QueueFullError: The queue is full.
    """
    if isinstance(plan, ProgramRun):
        return await _judge_program(request, plan, execution)
    tests = await _run_cases(plan, execution) if plan.cases else []
    return EvalResult(
        id=request.id,
        accepted=all(test.passed for test in tests),
        extracted_code=plan.program.code,
        tests=tests,
    )


async def _judge_program(
    request: SubmitRequest, plan: ProgramRun, execution: Execution
) -> EvalResult:
    answer = await execution.run(plan.program)
    if answer.status is RunStatus.SANDBOX_ERROR:
        raise internal_error(f"failed to request sandbox: {answer.message}")
    accepted = answer.status is RunStatus.SUCCESS
    return EvalResult(
        id=request.id,
        accepted=accepted,
        extracted_code=plan.extracted_code,
        full_code=plan.program.code,
        tests=[EvalTest(passed=accepted, exec_info=answer)],
    )


async def _run_cases(plan: StdioRuns, execution: Execution) -> list[EvalTest]:
    """Run the cases in order, up to the first failed one unless all are requested."""
    tests: list[EvalTest] = []
    left = OUTPUT_LIMIT
    async with execution.slot(plan.program.language) as slot:
        for case in plan.cases:
            request = plan.program.model_copy(update={"stdin": case.input["stdin"]})
            answer = await execution.runner.run(request, slot)
            if answer.status is RunStatus.SANDBOX_ERROR:
                raise internal_error(f"Failed to check stdio test case: {answer.message}")
            left -= _characters(answer)
            tests.append(_test(plan, case, answer if left >= 0 else _without_output(answer)))
            if left < 0 or not (tests[-1].passed or plan.run_all):
                break
    return tests


def _test(plan: StdioRuns, case: StdioCase, answer: RunCodeResponse) -> EvalTest:
    passed = answer.status is RunStatus.SUCCESS and lines(answer.stdout, case.output["stdout"])
    shown = _shortened(case) if passed and plan.shorten else case
    return EvalTest(passed=passed, exec_info=answer, test_info=shown)


def _characters(answer: RunCodeResponse) -> int:
    results = [result for result in (answer.compile_result, answer.run_result) if result]
    return sum(len(result.stdout or "") + len(result.stderr or "") for result in results)


def _without_output(answer: RunCodeResponse) -> RunCodeResponse:
    """Return the response of a run that was killed for its output."""
    message = f"output limit of {OUTPUT_LIMIT} characters for all runs of a submit exceeded\n"
    emptied = {"stdout": "", "stderr": message}
    killed = emptied | {"return_code": -signal.SIGKILL}
    return answer.model_copy(
        update={
            "status": RunStatus.FAILED,
            "compile_result": _updated(answer.compile_result, emptied),
            "run_result": _updated(answer.run_result, killed),
        }
    )


def _updated(result: CommandResult | None, update: Mapping[str, object]) -> CommandResult | None:
    return result.model_copy(update=dict(update)) if result else None


def _shortened(case: StdioCase) -> StdioCase:
    """Shorten the long texts of a case in the middle.

    Source: SandboxFusion 469de08, ``truncate_str`` in ``sandbox/utils/common.py``.
    """
    return StdioCase.model_construct(
        input={name: _cut(text) for name, text in case.input.items()},
        output={name: _cut(text) for name, text in case.output.items()},
    )


def _cut(text: str) -> str:
    if len(text) <= LONGEST_SHOWN:
        return text
    kept = (LONGEST_SHOWN - len(PLACEHOLDER)) // 2
    return text[:kept] + PLACEHOLDER + text[-kept:]
