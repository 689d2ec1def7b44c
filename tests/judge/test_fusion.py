"""SandboxFusion's own API, with this repository's sandbox and with stand-ins.

The methods `compute_score` (verl's codes and statuses) and `submit`, and programs of tools.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.judge.methods.fusion import ProgramRefusedError, run_program, single_outcome
from services.judge.permits import SandboxPool
from services.judge.sandbox import Attempts, SandboxClient
from shared.checkers import exact
from shared.config import SandboxConfig
from shared.errors import ServiceError
from shared.harness.sandbox_api import (
    CommandResult,
    EvalResult,
    EvalTest,
    RunCodeRequest,
    RunCodeResponse,
    SubmitRequest,
)
from shared.ledger import connect_async
from shared.ledger.pipelined import PipelinedRedis
from shared.programs import Program, ProgramResult
from shared.schemas import Problem, Verdict
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.judge.tasks import (
    HUMANEVAL,
    fenced,
    judge_code,
    make_task,
    stdio,
    together,
    verdict_of,
    with_tests,
)
from tests.sandbox.conftest import needs_cpp

ECHO = "print(input())"
SCORE = ("judge.method=compute_score", "sandbox.timeout=10")
SUBMIT = "judge.method=submit"
MBPP = with_tests(test_list=["assert inc(1) == 2", "assert inc(2) == 3"], test_setup_code="one = 1")
JudgeAnswer = Callable[..., Awaitable[Verdict]]


def ran(status: str = "Finished", return_code: int | None = 0, **fields: Any) -> CommandResult:
    values = {"status": status, "return_code": return_code, "execution_time": 0.25, **fields}
    return CommandResult.model_validate(values)


def response(
    status: str = "Success",
    run: CommandResult | None = None,
    compiled: CommandResult | None = None,
) -> RunCodeResponse:
    return RunCodeResponse.model_validate(
        {"status": status, "run_result": run, "compile_result": compiled}
    )


LATE = response("Failed", ran("TimeLimitExceeded", None))


# verl's scoring


async def test_a_time_out_that_does_not_happen_again_does_not_count() -> None:
    class Crowded:
        alone: list[bool] = []  # noqa: RUF012

        async def run_code(
            self, request: RunCodeRequest, *_: object, alone: bool
        ) -> RunCodeResponse:
            self.alone.append(alone)
            if request.stdin == "hangs" or (request.stdin == "slow" and not alone):
                return LATE
            return response(run=ran(stdout="1"))

    cases = [(name, "1") for name in ("slow", "quick", "hangs", "slow")]
    task = make_task(Crowded(), stdio(*cases), fenced(ECHO), *SCORE)  # type: ignore[arg-type]
    verdict = await verdict_of(task)
    assert verdict.case_codes == [1, 1, -3, 1]
    assert (verdict.confirmed, verdict.flipped) == (3, 2)
    assert Crowded.alone == [False] * 4 + [True] * 3
    left = make_task(
        Crowded(),  # type: ignore[arg-type]
        stdio(*cases),
        fenced(ECHO),
        *SCORE,
        "judge.confirm_timeouts=false",
    )
    assert (await verdict_of(left)).case_codes == [-3, 1, -3, -3]


@pytest.mark.parametrize("completion", ["print(1)", "I do not know.", "`print(1)`"])
async def test_without_a_fence_there_is_no_code(sandbox: SandboxClient, completion: str) -> None:
    verdict = await verdict_of(make_task(sandbox, stdio(*[("1", "1")] * 3), completion, *SCORE))
    assert verdict.final_status is FinalStatus.SYNTAX_ERROR
    assert verdict.detail == "no_code_block"
    assert verdict.case_codes == []
    assert (verdict.pass_ratio, verdict.cases_passed, verdict.cases_total) == (0.0, 0, 3)
    assert verdict.attempts == 0


async def test_calls_of_a_function(sandbox: SandboxClient) -> None:
    rows = [
        ("def f(a, b):\n    return a + b", "1\n2", "3", 1),
        ("class Solution:\n    def f(self, a, b):\n        return a + b", "1\n2", "3", 1),
        ("def f(a, b):\n    return [b, a]", '"x"\n{"k": null}', '[{"k": null}, "x"]', 1),
        ("def f(a):\n    return a > 0", "1", "true", 1),
        ("def f(a):\n    return None", "1", "null", 1),
        ("def f(a):\n    return 'text'", "1", "text", 1),
        ("def f(a):\n    return sqrt(a) + Counter('aa')['a']", "4", "4.0", 1),
        ("def f(a: List[int]) -> int:\n    return sum(a)", "[1, 2]", "3", 1),
        ("def f(a):\n    return a", "1", "2", 0),
        ("def f(a):\n    raise ValueError", "1", "1", 0),
        ("def f(a, b):\n    return a", "1", "1", 0),
        ("def g(a):\n    return a", "1", "1", 0),
        ("def f(a):\n    import sys\n    sys.exit(1)", "1", "1", -2),
        ("raise OSError\ndef f(a):\n    return a", "1", "1", -2),
    ]
    verdicts = await together(
        rows, lambda row: judge_code(sandbox, stdio(row[1:3], fn_name="f"), row[0], *SCORE)
    )
    codes = {row: verdict.case_codes for row, verdict in verdicts.items()}
    assert codes == {row: [row[3]] for row in rows}


@needs_cpp
async def test_a_compile_error_holds_for_all_cases(sandbox: SandboxClient) -> None:
    problem, options = stdio(*[("1", "1")] * 3), (*SCORE, "judge.language=cpp")
    verdict = await judge_code(sandbox, problem, "int main() { return 0", *options, language="cpp")
    assert verdict.case_codes == [-4, -4, -4]
    assert verdict.final_status is FinalStatus.SYNTAX_ERROR
    assert verdict.error_breakdown["syntax_error"] == 3
    assert verdict.first_failed_case is not None
    assert "error" in (verdict.first_failed_case.stderr or "")


@pytest.mark.parametrize(
    ("answer", "code", "detail"),
    [
        (response(run=ran(stdout="x\n")), 1, None),
        (response(run=ran(stdout="y")), 0, None),
        (response(run=ran(stdout=None)), 0, None),
        (response("Failed", ran(return_code=1)), -2, None),
        (response("Failed", ran(return_code=-11)), -2, "SIGSEGV"),
        (response("Failed", ran(return_code=-99)), -2, "signal 99"),
        (LATE, -3, None),
        (response("Failed", None, ran(return_code=1)), -4, None),
        (response("Failed", None, ran("TimeLimitExceeded", None)), -4, "compile_timeout"),
        (response("Failed", ran(return_code=1), ran()), -2, None),
        (response("Failed"), -1, "no run result"),
        (response(), -1, "success without a finished run"),
        (response(run=ran("TimeLimitExceeded", None)), -1, "success without a finished run"),
    ],
)
def test_the_code_of_an_answer(answer: RunCodeResponse, code: int, detail: str | None) -> None:
    outcome = single_outcome(answer, "in", "x", exact)
    assert (int(outcome.code), outcome.detail) == (code, detail)


# The data-set API


@pytest.fixture
def judge(sandbox: SandboxClient) -> JudgeAnswer:
    return lambda code, problem: judge_code(sandbox, problem, code, SUBMIT)


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
    verdict = await verdict_of(make_task(sandbox, stdio(("", "1")), text, SUBMIT))
    assert verdict.case_codes == [1]


@pytest.mark.parametrize(("problem", "total"), [(HUMANEVAL, 1), (MBPP, 2)], ids=["he", "mbpp"])
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
async def test_function_tests_by_submit(
    judge: JudgeAnswer, problem: Problem, total: int, code: str, status: FinalStatus
) -> None:
    """One run for all statements: they pass or fail together."""
    verdict = await judge(code, problem)
    assert verdict.final_status is status
    assert verdict.checker == "exit_code"
    assert verdict.cases_total == len(verdict.case_codes) == total
    assert len(set(verdict.case_codes)) == 1


# What is asked, and odd answers


def result(passed: bool = True, info: RunCodeResponse | None = None) -> EvalTest:
    return EvalTest(passed=passed, exec_info=info or response(run=ran(stdout="")))


TOO_LATE = result(False, LATE)


@dataclass
class Scripted:
    """Gives each submit the next list of tests, then always the last one."""

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


async def judged(sandbox: Scripted, problem: Problem, *overrides: str) -> Verdict:
    task = make_task(sandbox, problem, "text", SUBMIT, *overrides)  # type: ignore[arg-type]
    return await verdict_of(task)


TWO = stdio(("1", "a"), ("2", "b"))


async def body_of(problem: Problem, *overrides: str) -> Any:
    sandbox = Scripted([[result()] * 2])
    await judged(sandbox, problem, "sandbox.timeout=7", *overrides)
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


async def test_a_submit_with_a_time_out_that_does_not_happen_again() -> None:
    sandbox = Scripted([[TOO_LATE, TOO_LATE], [result(), TOO_LATE]])
    verdict = await judged(sandbox, TWO)
    assert verdict.case_codes == [1, -3]
    assert (verdict.confirmed, verdict.flipped, verdict.attempts) == (2, 1, 2)
    assert sandbox.alone == [False, True]
    unconfirmed = await judged(
        Scripted([[TOO_LATE, TOO_LATE]]), TWO, "judge.confirm_timeouts=false"
    )
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
    problem = with_tests(sandbox_dataset="humaneval", sandbox_id="HumanEval/0")
    assert await body_of(problem) == {
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
    verdict = await judged(Scripted([[result(), wrong, result()]]), problem)
    assert (verdict.cases_total, verdict.cases_passed, verdict.case_codes) == (3, 2, [1, 0, 1])
    failed = verdict.first_failed_case
    assert failed is not None
    assert (failed.case_index, failed.input, failed.expected) == (1, "1", "a")


# Programs of tools


async def run(redis_server: RedisServer, program: Program, url: str) -> ProgramResult:
    async with await connect_async(redis_server.url) as redis:
        pool = SandboxPool(PipelinedRedis(redis), [url], "w", max_concurrency=1)
        try:
            async with SandboxClient(pool, max_attempts=1, retry_budget=0.1) as sandbox:
                return await run_program(program, SandboxConfig(), sandbox)
        finally:
            await pool.close()


BASH = "read x; echo $x; exit 3"
ENDLESS = "print('a', flush=True)\nwhile True: pass"
CPP = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"


@pytest.mark.parametrize(
    ("program", "status", "stdout", "stderr", "exit_code"),
    [
        (Program(code="print(input())", stdin="hé"), "ok", "hé\n", "", 0),
        pytest.param(
            Program(code=CPP, stdin="1 2", language="cpp"), "ok", "3", "", 0, marks=needs_cpp
        ),
        (Program(code=BASH, stdin="7\n", language="bash"), "error", "7\n", "", 3),
        (Program(code="1 / 0"), "error", "", "ZeroDivisionError", 1),
        (Program(code="import os; os.abort()"), "error", "", "", -6),
        (Program(code=ENDLESS, timeout=1), "timeout", "a\n", "", None),
        (Program(code="x = 'a' * 10**9", memory_limit_mb=100), "memory", "", "MemoryError", 1),
        pytest.param(
            *(Program(code="int main() {", language="cpp"), "compile_error", "", "expected", None),
            marks=needs_cpp,
        ),
    ],
)
async def test_what_a_program_did(
    redis_server: RedisServer,
    sandbox_url: str,
    program: Program,
    status: str,
    stdout: str,
    stderr: str,
    exit_code: int | None,
) -> None:
    result = await run(redis_server, program, sandbox_url)
    assert (result.status, result.stdout, result.exit_code) == (status, stdout, exit_code)
    assert stderr in result.stderr
    assert 0 < result.seconds < 30
    assert not result.truncated


async def test_a_sandbox_that_is_away_is_no_output(redis_server: RedisServer) -> None:
    with pytest.raises(ServiceError) as caught:
        await run(redis_server, Program(code="1"), "http://127.0.0.1:9")
    assert not isinstance(caught.value, ProgramRefusedError)
    assert str(caught.value)


async def test_a_language_that_is_not_installed_is_no_output(
    redis_server: RedisServer, sandbox_url: str
) -> None:
    with pytest.raises(ServiceError, match="does not run 'lean'"):
        await run(redis_server, Program(code="1", language="lean"), sandbox_url)
