import pytest

from services.judge.calls import limits_of
from services.judge.sandbox import SandboxClient
from shared.config import load_config
from shared.harness.wire import CallResult
from shared.schemas import Problem, ProblemInfo, Verdict
from shared.statuses import FinalStatus
from tests.judge.pools import OpenPool
from tests.judge.stand_ins import Damaged, Scripted, case
from tests.judge.tasks import HUMANEVAL, MBPP, fenced, make_task, stdio, verdict_of
from tests.shared.ledgers import problem

STDIO = stdio(*[("1\n", "2\n")] * 3)
RIGHT = "```python\ndef inc(n):\n    return n + 1\n```"


class NeverAsked:
    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"the sandbox was asked: {name}")


async def judged(
    problem: Problem, completion: str, sandbox: object | None = None, *overrides: str
) -> Verdict:
    return await verdict_of(make_task(sandbox or NeverAsked(), problem, completion, *overrides))


@pytest.mark.parametrize("completion", ["", "\n\t \r\n\u2003\u00a0"])
@pytest.mark.parametrize("given", [STDIO, HUMANEVAL, MBPP], ids=["stdio", "humaneval", "mbpp"])
async def test_nothing_generated_is_empty_output(given: Problem, completion: str) -> None:
    verdict = await judged(given, completion)
    assert verdict.final_status is FinalStatus.EMPTY_OUTPUT
    assert verdict.judged
    assert not verdict.accepted
    assert (verdict.method, verdict.attempts, verdict.pass_ratio) == ("guard", 0, 0.0)
    assert verdict.cases_total == {STDIO: 3, HUMANEVAL: 1, MBPP: 2}[given]


@pytest.mark.parametrize("given", [STDIO, HUMANEVAL, MBPP], ids=["stdio", "humaneval", "mbpp"])
async def test_a_completion_that_is_too_long_is_not_run(given: Problem) -> None:
    long = f"{RIGHT}\n{'#' * 100}"
    limit = f"judge.max_completion_chars={len(long) - 1}"
    verdict = await judged(given, long, None, limit)
    assert verdict.final_status is FinalStatus.SYNTAX_ERROR
    assert verdict.detail == "completion_too_long"
    assert verdict.judged


async def test_the_value_of_a_failed_assertion_is_recorded(sandbox: SandboxClient) -> None:
    verdict = await judged(MBPP, "```python\ndef inc(n):\n    return 2\n```", sandbox)
    assert verdict.first_failed_case is not None
    assert verdict.first_failed_case.expected == "assert inc(2) == 3"
    assert verdict.first_failed_case.actual == "2"
    assert (verdict.first_failed_case.stderr or "").startswith("Traceback")


LOOP = "def inc(n):\n    while n > 1: pass\n    return 2"


async def test_a_limit_of_cpu_time_is_not_confirmed(sandbox: SandboxClient) -> None:
    limits = ("sandbox.timeout=0.3", "judge.wall_factor=100")
    verdict = await judged(MBPP, fenced(LOOP), sandbox, *limits)
    assert verdict.case_codes == [1, -3]
    assert (verdict.attempts, verdict.confirmed) == (1, 0)
    assert verdict.cpu_time is not None
    assert verdict.cpu_time > 0.3
    assert verdict.peak_memory is not None
    assert verdict.peak_memory > 1e6


async def test_function_tests_that_stand_still_are_confirmed(
    sandbox: SandboxClient, pool: OpenPool
) -> None:
    code = "import time\ndef inc(n):\n    time.sleep(60 * (n - 1))\n    return 2"
    limits = ("sandbox.timeout=0.5", "judge.wall_factor=1")
    verdict = await judged(MBPP, fenced(code), sandbox, *limits)
    assert verdict.case_codes == [1, -3]
    assert (verdict.attempts, verdict.confirmed, verdict.flipped) == (2, 1, 0)
    assert [grant.exclusive for grant in pool.grants] == [False, True]


OK = ("compile", "ok", b"", b"")
DONE = ("end", "done")


@pytest.mark.parametrize(
    ("again", "status", "flipped"),
    [(0.5, FinalStatus.RUNTIME_ERROR, 1), (1.3, FinalStatus.TIMEOUT, 0)],
)
async def test_function_tests_just_beyond_their_limit_are_confirmed(
    again: float, status: FinalStatus, flipped: int
) -> None:
    scripted = Scripted([[OK, case(0, cpu=cpu), DONE] for cpu in (1.1, again)])
    verdict = await judged(HUMANEVAL, RIGHT, scripted, "sandbox.timeout=1")
    assert (verdict.final_status, verdict.confirmed, verdict.flipped) == (status, 1, flipped)
    assert scripted.alone == [False, True]


@pytest.mark.parametrize("given", [HUMANEVAL, MBPP], ids=["humaneval", "mbpp"])
@pytest.mark.parametrize(
    ("times", "status"), [(1, FinalStatus.SUCCESS), (2, FinalStatus.RUNTIME_ERROR)]
)
async def test_where_the_harness_is_lost_the_tests_run_again_out_of_the_answers_reach(
    sandbox: SandboxClient, given: Problem, times: int, status: FinalStatus
) -> None:
    """An answer can make the harness fail, and must not gain by it."""
    left = [CallResult()] * times
    damaged = Damaged(sandbox, lambda result: left.pop() if left else result)
    verdict = await judged(given, RIGHT, damaged)
    assert (verdict.final_status, verdict.shared_process) == (status, False)
    # After a second loss an empty program shows that the harness itself runs.
    assert verdict.attempts == times + 1


@pytest.mark.parametrize("given", [HUMANEVAL, MBPP], ids=["humaneval", "mbpp"])
async def test_function_tests_are_python_whatever_other_answers_are(
    sandbox: SandboxClient, given: Problem
) -> None:
    assert (await judged(given, RIGHT, sandbox, "judge.language=cpp")).accepted


async def test_each_data_set_has_its_own_way(sandbox: SandboxClient) -> None:
    own = (
        "judge.datasets.d1.method=compute_score",
        "judge.datasets.d2={method: submit}",
        "judge.datasets.d3={checker: exact}",
    )
    completion = f"{fenced('print(0)')}\n{fenced('print(int(input()) + 1)')}"
    ways = {
        "d1": ("compute_score", "exact", True),
        "d2": ("submit", "lines", False),
        "d3": ("batch", "exact", True),
        "d4": ("batch", "tokens", True),
    }
    for dataset, way in ways.items():
        problem = STDIO.model_copy(update={"dataset": dataset})
        verdict = await judged(problem, completion, sandbox, *own)
        assert (verdict.method, verdict.checker, verdict.accepted) == way


async def test_an_answer_that_utf_8_cannot_hold() -> None:
    verdict = await judged(STDIO, f"{RIGHT}\n# \ud800")
    assert (verdict.final_status, verdict.detail) == (FinalStatus.SYNTAX_ERROR, "invalid_utf8")


# Limits of a problem


def limits(info: ProblemInfo, *overrides: str) -> tuple[float, int]:
    config = load_config(None, ["sandbox.timeout=10", "sandbox.memory_limit_mb=512", *overrides])
    given = problem(extra_info=info.model_dump_json())
    limits = limits_of(given, config.judge.for_dataset(given.dataset), config.sandbox)
    return limits.timeout, limits.memory_limit_mb


OWN = "judge.problem_limits=true"
KNOWN = ProblemInfo(time_limit=2.5, memory_limit=256_000_000)


def test_the_limits_of_a_problem_count_on_request() -> None:
    assert limits(KNOWN) == (10, 512)
    assert limits(KNOWN, OWN) == (2.5, 245 + 64)
    assert limits(KNOWN, "judge.datasets={d1: {problem_limits: true}}") == (2.5, 245 + 64)
    assert limits(KNOWN, OWN, "judge.datasets={d1: {problem_limits: false}}") == (10, 512)


def test_limits_that_a_problem_does_not_have() -> None:
    for seconds in (None, 0, -1, float("inf"), float("nan")):
        assert limits(ProblemInfo(time_limit=seconds, memory_limit=0), OWN) == (10, 512), seconds
