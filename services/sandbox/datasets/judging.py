"""Judging of a submit: run its plan, compare the output, limit the size of the response."""

import asyncio
import signal
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from services.sandbox.datasets.base import Plan, ProgramRun, StdioRuns, internal_error
from services.sandbox.execution import Execution
from services.sandbox.runner import Program
from services.sandbox.schemas import (
    CommandResult,
    EvalResult,
    EvalTest,
    RunCodeResponse,
    RunStatus,
    StdioCase,
    SubmitRequest,
)
from services.sandbox.workspace import WorkspaceError
from shared.checkers import lines

CASES_AT_ONCE = 3
LONGEST_SHOWN = 1000  # characters per text in the test_info of a passed case
PLACEHOLDER = "..."

Result = TypeVar("Result")


async def judge(request: SubmitRequest, plan: Plan, execution: Execution) -> EvalResult:
    """Run the plan and compare the output.

    Raises:
        DatasetError: 500, the sandbox could not run a program.
        QueueFullError: The queue is full.
    """
    match plan:
        case ProgramRun():
            return await _judge_program(request, plan, execution)
        case StdioRuns():
            try:
                tests = await _run_cases(plan, execution)
            except WorkspaceError as error:
                raise internal_error(f"Failed to check stdio test case: {error}") from error
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
    accepted = answer.status is RunStatus.SUCCESS and plan.flag in answer.stdout
    return EvalResult(
        id=request.id,
        accepted=accepted,
        extracted_code=plan.extracted_code,
        full_code=plan.program.code,
        tests=[EvalTest(passed=accepted, exec_info=answer)],
        extra=plan.extra,
    )


async def _run_cases(plan: StdioRuns, execution: Execution) -> list[EvalTest]:
    """Run the cases in order, up to the first failed one unless all are requested."""
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
                raise internal_error(f"Failed to check stdio test case: {answer.message}")
            tests.append(_test(plan, plan.cases[len(tests)], budget.spend(answer)))
            if budget.exceeded or not (tests[-1].passed or plan.run_all):
                break
    return tests


def _begin(
    plan: StdioRuns, execution: Execution, program: Program | None
) -> Iterator[Coroutine[Any, Any, RunCodeResponse]]:
    for index, case in enumerate(plan.cases):
        request = plan.program.model_copy(update={"stdin": case.input["stdin"]})
        # The first run admits the whole submit: a later rejection would waste the finished runs.
        admitted = program is not None or index > 0
        yield execution.run(request, admitted=admitted, program=program)


def _test(plan: StdioRuns, case: StdioCase, answer: RunCodeResponse) -> EvalTest:
    passed = answer.status is RunStatus.SUCCESS and lines(answer.stdout, case.output["stdout"])
    shown = _shortened(case) if passed and plan.shorten else case
    return EvalTest(passed=passed, exec_info=answer, test_info=shown)


async def in_order(
    works: Iterable[Coroutine[Any, Any, Result]], limit: int
) -> AsyncGenerator[Result, None]:
    """Yield results in the order of ``works``, of which at most ``limit`` run concurrently.

    ``works`` is consumed lazily. Closing the generator cancels the running ones and waits for their
    end.
    """
    running: deque[asyncio.Task[Result]] = deque()
    try:
        for work in works:
            running.append(asyncio.create_task(work))
            if len(running) == limit:
                yield await running[0]
                running.popleft()
        while running:
            yield await running[0]
            running.popleft()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


# Size limit of the response.


class OutputBudget:
    """Limit on the output of all runs of a submit together: the response contains all of it.

    Attributes:
        exceeded: Whether the last run exceeded the limit.
    """

    def __init__(self, limit: int) -> None:
        self.exceeded = False
        self._limit = limit
        self._left = limit

    def spend(self, answer: RunCodeResponse) -> RunCodeResponse:
        """Return the response; beyond the limit, the one of a run killed for its output."""
        results = [result for result in (answer.compile_result, answer.run_result) if result]
        self._left -= sum(len(result.stdout or "") + len(result.stderr or "") for result in results)
        self.exceeded = self._left < 0
        return self._without_output(answer) if self.exceeded else answer

    def _without_output(self, answer: RunCodeResponse) -> RunCodeResponse:
        message = f"output limit of {self._limit} characters for all runs of a submit exceeded\n"
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
