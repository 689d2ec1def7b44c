"""SandboxFusion's data-set API, one ``/submit`` per completion with the record inline.

Extraction, comparison and acceptance are SandboxFusion's; what Plumbline does better (early exits,
CPU-time limits, a search for the right block) does not apply. These are SandboxFusion's numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from services.judge.methods.base import Task
from services.judge.methods.cases import is_syntax_error, single_outcome
from services.judge.outcome import CaseOutcome, Judgement
from services.judge.sandbox import Submit, SubmitResponse, SubmittedTest
from shared.schemas import GroundTruth, HumanEvalTests, StdioTests
from shared.statuses import CaseCode, FinalStatus

NAME = "submit"
CHECKER = "lines"


async def judge(task: Task) -> Judgement:
    tests = task.problem.tests
    answer = await _submit(task, tests)
    late = [test for test in answer.tests if test.exec_info.timed_out]
    confirmed = flipped = 0
    if late and task.settings.confirm_timeouts:
        answer = await _submit(task.by_itself(), tests)
        confirmed = len(late)
        flipped = max(0, confirmed - sum(test.exec_info.timed_out for test in answer.tests))
    outcomes = _outcomes(answer.tests, tests)
    status = detail = None
    if len(outcomes) < tests.cases and all(case.code is CaseCode.PASSED for case in outcomes):
        status, detail = FinalStatus.API_ERROR, "cases without a result"
    elif is_syntax_error(outcomes[0]):
        status = FinalStatus.SYNTAX_ERROR
    checker = CHECKER if isinstance(tests, StdioTests) else "exit_code"
    return Judgement(NAME, checker, tests.cases, outcomes, status, detail, confirmed, flipped)


async def _submit(task: Task, tests: GroundTruth) -> SubmitResponse:
    name, record, config = _record(task, tests)
    config |= {
        "provided_data": record,
        "compile_timeout": task.limits.timeout,
        "run_timeout": task.limits.timeout,
    }
    request = Submit(
        dataset=name,
        completion=task.completion,
        config=config,
        cases=tests.cases,
        timeout=task.limits.timeout,
    )
    return await task.sandbox.submit(request, task.attempts, alone=task.alone)


def _record(task: Task, tests: GroundTruth) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The name that picks SandboxFusion's class, the record as it reads it, the config."""
    problem = task.problem
    if isinstance(tests, StdioTests):
        cases = zip(tests.inputs, tests.outputs, strict=True)
        test = [{"input": {"stdin": i}, "output": {"stdout": o}} for i, o in cases]
        record = {"id": 0, "content": problem.prompt, "labels": {}, "test": test}
        config: Mapping[str, Any] = {
            "dataset_type": "CommonOJDataset",
            "language": task.settings.language,
            "extra": {"run_all_cases": True},
        }
        return "plumbline_stdio", record, dict(config)
    if isinstance(tests, HumanEvalTests):
        record = {
            "task_id": problem.problem_id,
            "prompt": tests.prompt,
            "entry_point": tests.entry_point,
            "test": tests.test,
            "canonical_solution": "",
        }
        # The one name (with its kin) for which the tests are called at all.
        return "humaneval_python", record, {"extra": {"is_freeform": True}}
    record = {
        "id": 0,
        "content": problem.prompt,
        "labels": {"test_setup_code": tests.test_setup_code},
        "test_list": tests.test_list,
    }
    return "mbpp", record, {}


def _outcomes(results: Sequence[SubmittedTest], tests: GroundTruth) -> list[CaseOutcome]:
    if isinstance(tests, StdioTests):
        cases = zip(results, tests.inputs, tests.outputs, strict=False)
        return [_outcome(result, stdin, expected) for result, stdin, expected in cases]
    # One run for all statements: they pass or fail together, and its time is put down to the first.
    ran = [_of_assertion(_outcome(result, "", "")) for result in results[:1]]
    return ran + [replace(case, duration=0.0) for case in ran] * (tests.cases - 1)


def _outcome(result: SubmittedTest, stdin: str, expected: str) -> CaseOutcome:
    # SandboxFusion has compared already.
    return single_outcome(result.exec_info, stdin, expected, lambda *_: result.passed)


def _of_assertion(outcome: CaseOutcome) -> CaseOutcome:
    last = (outcome.stderr or "").rstrip().rsplit("\n", 1)[-1]
    failed = outcome.code is CaseCode.RUNTIME_ERROR and last.startswith("AssertionError")
    return replace(outcome, code=CaseCode.WRONG_ANSWER) if failed else outcome
