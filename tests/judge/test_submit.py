"""SandboxFusion's data-set API, with this repository's sandbox and with a stand-in."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.judge.requests import Attempts
from services.judge.sandbox import SandboxClient
from shared.harness.sandbox_api import EvalResult, EvalTest, RunCodeResponse, SubmitRequest
from shared.schemas import Problem, Verdict
from shared.statuses import FinalStatus
from tests.judge.tasks import (
    HUMANEVAL,
    fenced,
    judge_code,
    make_task,
    stdio,
    verdict_of,
    with_tests,
)

BASE = "judge.method=submit"
ECHO = "print(input())"
MBPP = with_tests(test_list=["assert inc(1) == 2", "assert inc(2) == 3"], test_setup_code="one = 1")
JudgeAnswer = Callable[..., Awaitable[Verdict]]


@pytest.fixture
def judge(sandbox: SandboxClient) -> JudgeAnswer:
    return lambda code, given: judge_code(sandbox, given, code, BASE)


async def test_standard_input_and_output(judge: JudgeAnswer) -> None:
    verdict = await judge(ECHO, stdio(("1\n", "1\n"), ("ä 2", "ä 2"), ("", "")))
    assert verdict.case_codes == [1, 1, -2]
    verdict = await judge(ECHO, stdio(("1\n", "1\n"), ("ä 2", "ä 2")))
    assert verdict.accepted
    assert (verdict.method, verdict.checker, verdict.attempts) == ("submit", "lines", 1)
    assert (verdict.cases_total, verdict.pass_ratio) == (2, 1.0)
    assert verdict.total_judge_time > 0
    assert (verdict.cpu_time, verdict.peak_memory) == (None, None)


async def test_the_block_is_the_one_that_sandboxfusion_takes(sandbox: SandboxClient) -> None:
    text = f"{fenced('print(1)')}\nNo:\n{fenced('print(2)')}"
    verdict = await verdict_of(make_task(sandbox, stdio(("", "1")), text, BASE))
    assert verdict.case_codes == [1]


# Function tests


@pytest.mark.parametrize(("given", "total"), [(HUMANEVAL, 1), (MBPP, 2)], ids=["he", "mbpp"])
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("def inc(n):\n    return n + 1", FinalStatus.SUCCESS),
        ("def inc(n):\n    return 0", FinalStatus.WRONG_ANSWER),
        ("def inc(n):\n    return n / 0", FinalStatus.RUNTIME_ERROR),
        ("def inc(n) return n", FinalStatus.SYNTAX_ERROR),
        # What the other methods do not fall for.
        ("def inc(n):\n    return 0\nimport os\nos._exit(0)", FinalStatus.SUCCESS),
    ],
)
async def test_function_tests(
    judge: JudgeAnswer, given: Problem, total: int, code: str, status: FinalStatus
) -> None:
    """One run for all statements: they pass or fail together."""
    verdict = await judge(code, given)
    assert verdict.final_status is status
    assert verdict.checker == "exit_code"
    assert verdict.cases_total == len(verdict.case_codes) == total
    assert len(set(verdict.case_codes)) == 1


# What is asked, and odd answers


def ran(status: str = "Finished", code: int | None = 0, stderr: str = "") -> RunCodeResponse:
    run = {"status": status, "return_code": code, "execution_time": 0.25, "stderr": stderr}
    good = (status, code) == ("Finished", 0)
    status = "Success" if good else "Failed"
    return RunCodeResponse.model_validate({"status": status, "run_result": {**run, "stdout": ""}})


def result(passed: bool = True, info: RunCodeResponse | None = None) -> EvalTest:
    return EvalTest(passed=passed, exec_info=info or ran())


BROKEN = RunCodeResponse(status="SandboxError", message="")
LATE = result(False, ran("TimeLimitExceeded", None))


@dataclass
class Scripted:
    """Gives each submit the next list of tests, the last one for ever."""

    answers: list[list[EvalTest]]
    asked: list[SubmitRequest] = field(default_factory=list)
    alone: list[bool] = field(default_factory=list)

    async def submit(
        self, request: SubmitRequest, _longest: float, attempts: Attempts, *, alone: bool = False
    ) -> EvalResult:
        attempts.requests += 1
        self.asked.append(request)
        self.alone.append(alone)
        tests = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return EvalResult(accepted=all(test.passed for test in tests), tests=tests)


async def judged(sandbox: Scripted, given: Problem, *overrides: str) -> Verdict:
    task = make_task(sandbox, given, "text", BASE, *overrides)  # type: ignore[arg-type]
    return await verdict_of(task)


TWO = stdio(("1", "a"), ("2", "b"))


async def body_of(given: Problem, *overrides: str) -> Any:
    sandbox = Scripted([[result()] * 2])
    await judged(sandbox, given, "sandbox.timeout=7", *overrides)
    return json.loads(sandbox.asked[0].body)


async def test_what_is_asked() -> None:
    limits = {"compile_timeout": 7, "run_timeout": 7}
    cases = [
        {"input": {"stdin": "1"}, "output": {"stdout": "a"}},
        {"input": {"stdin": "2"}, "output": {"stdout": "b"}},
    ]
    assert await body_of(TWO, "judge.language=cpp") == {
        "dataset": "plumbline_stdio",
        "id": 0,
        "completion": "text",
        "config": {
            "dataset_type": "CommonOJDataset",
            "language": "cpp",
            "extra": {"run_all_cases": True},
            "provided_data": {"id": 0, "content": TWO.prompt, "labels": {}, "test": cases},
            **limits,
        },
    }
    humaneval = await body_of(HUMANEVAL)
    assert humaneval["dataset"] == "humaneval_python"
    assert humaneval["config"]["extra"] == {"is_freeform": True}
    assert humaneval["config"]["provided_data"]["entry_point"] == "inc"
    mbpp = await body_of(MBPP)
    assert mbpp["dataset"] == "mbpp"
    assert mbpp["config"]["provided_data"]["labels"] == {"test_setup_code": "one = 1"}
    assert mbpp["config"].items() >= limits.items()


async def test_a_time_out_that_does_not_happen_again() -> None:
    sandbox = Scripted([[LATE, LATE], [result(), LATE]])
    verdict = await judged(sandbox, TWO)
    assert verdict.case_codes == [1, -3]
    assert (verdict.confirmed, verdict.flipped, verdict.attempts) == (2, 1, 2)
    assert sandbox.alone == [False, True]
    unconfirmed = await judged(Scripted([[LATE, LATE]]), TWO, "judge.confirm_timeouts=false")
    assert (unconfirmed.confirmed, unconfirmed.attempts) == (0, 1)


@pytest.mark.parametrize(
    ("tests", "status", "codes"),
    [
        ([], FinalStatus.API_ERROR, []),
        ([result()], FinalStatus.API_ERROR, [1]),
        ([result(False)], FinalStatus.WRONG_ANSWER, [0]),
        ([result()] * 3, FinalStatus.SUCCESS, [1, 1]),
        (
            [result(), result(False, RunCodeResponse(status="SandboxError", message=""))],
            None,
            [1, -1],
        ),
    ],
)
async def test_results_that_are_too_few_or_too_many(
    tests: list[EvalTest], status: FinalStatus | None, codes: list[int]
) -> None:
    """What nothing was said of has not passed, and is no fault of the answer."""
    verdict = await judged(Scripted([tests]), TWO)
    assert verdict.final_status is (status or FinalStatus.API_ERROR)
    assert verdict.case_codes == codes
    assert verdict.cases_total == 2


async def test_a_problem_without_tests_is_judged_by_its_id_at_the_server() -> None:
    given = with_tests(sandbox_dataset="humaneval", sandbox_id="HumanEval/0")
    assert await body_of(given) == {
        "dataset": "humaneval_python",
        "id": "HumanEval/0",
        "completion": "text",
        "config": {
            "language": "python",
            "compile_timeout": 7,
            "run_timeout": 7,
            "extra": {"is_freeform": True, "run_all_cases": True, "return_full_case": True},
        },
    }
    case = {"input": {"stdin": "1"}, "output": {"stdout": "a"}}
    wrong = result(False).model_copy(update={"test_info": case})
    verdict = await judged(Scripted([[result(), wrong, result()]]), given)
    assert (verdict.cases_total, verdict.cases_passed, verdict.case_codes) == (3, 2, [1, 0, 1])
    failed = verdict.first_failed_case
    assert failed is not None
    assert (failed.case_index, failed.input, failed.expected) == (1, "1", "a")
