"""From a plan to a verdict."""

from collections.abc import Coroutine, Iterator
from contextlib import aclosing
from typing import Any

from services.sandbox.execution import Execution
from services.sandbox.runner import Program
from services.sandbox.schemas import RunCodeResponse, RunStatus
from services.sandbox.submit.errors import failed
from services.sandbox.submit.ordered import in_order
from services.sandbox.submit.output import OutputBudget, shortened
from services.sandbox.submit.plans import Plan, ProgramRun, StdioRuns
from services.sandbox.submit.schemas import EvalResult, EvalTest, StdioCase, SubmitRequest
from services.sandbox.workspace import WorkspaceError
from shared.checkers import lines

CASES_AT_ONCE = 3


async def judge(request: SubmitRequest, plan: Plan, execution: Execution) -> EvalResult:
    """Run what is planned and compare.

    Raises:
        SubmitError: 500, for the sandbox could not run a program.
        QueueFullError: There is no place for this submit.
    """
    match plan:
        case ProgramRun():
            return await _judge_program(request, plan, execution)
        case StdioRuns():
            try:
                tests = await _run_cases(plan, execution)
            except WorkspaceError as error:
                raise failed(f"Failed to check stdio test case: {error}") from error
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
        raise failed(f"failed to request sandbox: {answer.message}")
    accepted = answer.status is RunStatus.SUCCESS and plan.flag in _stdout(answer)
    return EvalResult(
        id=request.id,
        accepted=accepted,
        extracted_code=plan.extracted_code,
        full_code=plan.program.code,
        tests=[EvalTest(passed=accepted, exec_info=answer)],
        extra=plan.extra,
    )


async def _run_cases(plan: StdioRuns, execution: Execution) -> list[EvalTest]:
    """The cases in order, up to the first that is not passed unless all are wanted."""
    tests: list[EvalTest] = []
    if not plan.cases:
        return tests
    budget = OutputBudget(execution.submit_output_limit)
    async with (
        execution.compiled(plan.program) as program,
        aclosing(in_order(_begin(plan, execution, program), CASES_AT_ONCE)) as answers,
    ):
        async for answer in answers:
            if answer.status is RunStatus.SANDBOX_ERROR:
                raise failed(f"Failed to check stdio test case: {answer.message}")
            tests.append(_test(plan, plan.cases[len(tests)], budget.spend(answer)))
            if budget.exceeded or not (tests[-1].passed or plan.run_all):
                break
    return tests


def _begin(
    plan: StdioRuns, execution: Execution, program: Program | None
) -> Iterator[Coroutine[Any, Any, RunCodeResponse]]:
    for index, case in enumerate(plan.cases):
        request = plan.program.model_copy(update={"stdin": case.input["stdin"]})
        # The submit as a whole is admitted with its first run: turned away half-way, all that has
        # been run would have been in vain.
        admitted = program is not None or index > 0
        yield execution.run(request, admitted=admitted, program=program)


def _test(plan: StdioRuns, case: StdioCase, answer: RunCodeResponse) -> EvalTest:
    right = answer.status is RunStatus.SUCCESS and lines(_stdout(answer), case.output["stdout"])
    shown = shortened(case) if right and plan.shorten else case
    return EvalTest(passed=right, exec_info=answer, test_info=shown)


def _stdout(answer: RunCodeResponse) -> str:
    return (answer.run_result.stdout or "") if answer.run_result else ""
