"""The method `compute_score` with this repository's sandbox: verl's codes and statuses."""

import shutil
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from services.judge.calls import single_outcome
from services.judge.sandbox import SandboxClient
from shared.checkers import exact
from shared.harness.sandbox_api import CommandResult, RunCodeRequest, RunCodeResponse
from shared.schemas import Verdict
from shared.statuses import FinalStatus
from tests.judge.tasks import fenced, judge_code, make_task, stdio, together, verdict_of

ECHO = "print(input())"
BASE = ("judge.method=compute_score", "sandbox.timeout=10")
JudgeAnswer = Callable[..., Awaitable[Verdict]]


@pytest.fixture
def judge(sandbox: SandboxClient) -> JudgeAnswer:
    async def judge(
        code: str,
        *cases: tuple[str, str],
        fn_name: str | None = None,
        overrides: Sequence[str] = (),
    ) -> Verdict:
        problem = stdio(*(cases or [("1\n", "1\n")]), fn_name=fn_name)
        language = "cpp" if "judge.language=cpp" in overrides else "python"
        return await judge_code(sandbox, problem, code, *BASE, *overrides, language=language)

    return judge


async def test_a_time_out_that_does_not_happen_again_does_not_count() -> None:
    late = response("Failed", ran("TimeLimitExceeded", None))

    class Crowded:
        alone: list[bool] = []  # noqa: RUF012

        async def run_code(
            self, request: RunCodeRequest, *_: object, alone: bool
        ) -> RunCodeResponse:
            self.alone.append(alone)
            if request.stdin == "hangs" or (request.stdin == "slow" and not alone):
                return late
            return response(run=ran(stdout="1"))

    cases = [(name, "1") for name in ("slow", "quick", "hangs", "slow")]
    task = make_task(Crowded(), stdio(*cases), fenced(ECHO), *BASE)  # type: ignore[arg-type]
    verdict = await verdict_of(task)
    assert verdict.case_codes == [1, 1, -3, 1]
    assert (verdict.confirmed, verdict.flipped) == (3, 2)
    assert Crowded.alone == [False] * 4 + [True] * 3
    left = make_task(
        Crowded(),  # type: ignore[arg-type]
        stdio(*cases),
        fenced(ECHO),
        *BASE,
        "judge.confirm_timeouts=false",
    )
    assert (await verdict_of(left)).case_codes == [-3, 1, -3, -3]


@pytest.mark.parametrize("completion", ["print(1)", "I do not know.", "`print(1)`"])
async def test_without_a_fence_there_is_no_code(sandbox: SandboxClient, completion: str) -> None:
    verdict = await verdict_of(make_task(sandbox, stdio(*[("1", "1")] * 3), completion, *BASE))
    assert verdict.final_status is FinalStatus.SYNTAX_ERROR
    assert verdict.detail == "no_code_block"
    assert verdict.case_codes == []
    assert (verdict.pass_ratio, verdict.cases_passed, verdict.cases_total) == (0.0, 0, 3)
    assert verdict.attempts == 0


# Calls of a function


async def test_calls_of_a_function(judge: JudgeAnswer) -> None:
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
    verdicts = await together(rows, lambda row: judge(row[0], row[1:3], fn_name="f"))
    found = {row: verdict.case_codes for row, verdict in verdicts.items()}
    assert found == {row: [row[3]] for row in rows}


# Compiled languages


@pytest.fixture
def _compiler() -> None:
    if shutil.which("g++") is None:
        pytest.skip("this machine has no g++")


@pytest.mark.usefixtures("_compiler")
async def test_a_compile_error_holds_for_all_cases(judge: JudgeAnswer) -> None:
    code = "int main() { return 0"
    verdict = await judge(code, *[("1", "1")] * 3, overrides=["judge.language=cpp"])
    assert verdict.case_codes == [-4, -4, -4]
    assert verdict.final_status is FinalStatus.SYNTAX_ERROR
    assert verdict.error_breakdown["syntax_error"] == 3
    assert verdict.first_failed_case is not None
    assert "error" in (verdict.first_failed_case.stderr or "")


# The rules by themselves


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


@pytest.mark.parametrize(
    ("answer", "code", "detail"),
    [
        (response(run=ran(stdout="x\n")), 1, None),
        (response(run=ran(stdout="y")), 0, None),
        (response(run=ran(stdout=None)), 0, None),
        (response("Failed", ran(return_code=1)), -2, None),
        (response("Failed", ran(return_code=-11)), -2, "SIGSEGV"),
        (response("Failed", ran(return_code=-99)), -2, "signal 99"),
        (response("Failed", ran("TimeLimitExceeded", None)), -3, None),
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
