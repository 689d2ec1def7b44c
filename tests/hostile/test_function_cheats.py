"""Cheats and unusual right answers to function tests, on every rung and by ``/run_code``."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping

import pytest

from services.judge.sandbox import SandboxClient
from shared.errors import ServiceError
from shared.harness.confinement import landlock_abi
from shared.schemas import Problem, Verdict
from tests.hostile.function_cheats import CHEATS, KILLS, PRIES, RIGHT
from tests.judge.pools import OpenPool
from tests.judge.stand_ins import WithoutCases
from tests.judge.tasks import judge_code, together, with_tests
from tests.sandbox.conftest import unavailable
from tests.sandbox.installations import python_for
from tests.sandboxes import own_sandbox

pytestmark = pytest.mark.hostile
# A process namespace confines signals and memory, Landlock memory on each kernel that has it.
NAMESPACES = ("bwrap", "by /run_code")
BY_RUN_CODE = "by /run_code"
WAYS = ["bwrap", "landlock", "none", BY_RUN_CODE]
# Each way and each kind of tests; the others run nightly.
ORDINARY = {
    ("bwrap", "mbpp"),
    ("landlock", "humaneval"),
    (BY_RUN_CODE, "humaneval"),
}
CELLS = [
    pytest.param(way, kind, marks=() if (way, kind) in ORDINARY else pytest.mark.nightly)
    for way in WAYS
    for kind in ("humaneval", "mbpp")
]


def humaneval(name: str, test: str) -> Problem:
    return with_tests(prompt=f"def {name}(x):\n", entry_point=name, test=test)


def mbpp(*tests: str) -> Problem:
    return with_tests(test_list=tests)


PROBLEMS = {
    "humaneval": humaneval(
        "twice",
        "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 6\n"
        "    assert candidate(11) == 22, 'not 22'\n",
    ),
    "mbpp": mbpp("assert twice(2) == 4", "assert twice(3) == 6", "assert twice(11) == 22"),
}
LISTS = {
    "humaneval": humaneval(
        "f",
        "def check(candidate):\n    assert list(candidate([3, 1])) == [6, 2]\n"
        "    assert list(candidate([])) == []\n    assert sorted(candidate([1, 2])) == [2, 4]\n",
    ),
    "mbpp": mbpp("assert list(f([3, 1])) == [6, 2]", "assert [n for n in f([1, 2, 5])][1] == 4"),
}


@pytest.fixture(scope="module")
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A way to run answers; its sandbox is started once."""
    name = request.param
    folder = tmp_path_factory.mktemp("sandbox")
    settings = {
        "PLUMBLINE_SANDBOX_CONCURRENCY": "2",
        "PLUMBLINE_SANDBOX_PYTHON": str(python_for(name)),
    }
    if name != BY_RUN_CODE:
        settings["PLUMBLINE_SANDBOX_ISOLATION"] = name
    try:
        with own_sandbox(folder, **settings) as url:
            yield f"{name} {url}"
    except ServiceError as error:
        unavailable(name, error)


@pytest.fixture
async def client(way: str) -> AsyncIterator[SandboxClient]:
    kind = WithoutCases if way.startswith(BY_RUN_CODE) else SandboxClient
    async with kind(OpenPool([way.split()[-1]]), max_attempts=2, retry_budget=30) as client:
        yield client


async def verdicts(
    client: SandboxClient, tests: Problem, answers: Mapping[str, str]
) -> dict[str, Verdict]:
    """Judge answers, several at once, one after another in each slot."""

    async def judge(name: str) -> Verdict:
        limits = ("sandbox.timeout=2", "judge.wall_factor=2", "sandbox.memory_limit_mb=1024")
        return await judge_code(client, tests, answers[name], *limits)

    return await together(answers, judge, 4)


def harmful(way: str) -> set[str]:
    """Cheats that would reach other processes of this machine: they must not run."""
    if way.startswith(NAMESPACES):
        return set()
    kills = set() if landlock_abi() >= 6 else KILLS  # it confines signals
    return kills | (PRIES if way.startswith("none") and os.geteuid() != 0 else set())


@pytest.mark.parametrize(("way", "kind"), CELLS, indirect=["way"])
async def test_no_cheat_is_accepted(client: SandboxClient, way: str, kind: str) -> None:
    cheats = {name: code for name, code in CHEATS.items() if name not in harmful(way)}
    statuses = await verdicts(client, PROBLEMS[kind], cheats)
    assert {name: v.final_status for name, v in statuses.items() if v.accepted} == {}
    assert {name: v for name, v in statuses.items() if v.shared_process or not v.judged} == {}


@pytest.mark.parametrize(("way", "kind"), CELLS, indirect=["way"])
async def test_unusual_right_answers_are_accepted(client: SandboxClient, kind: str) -> None:
    await check_accepted(client, kind, RIGHT)


@pytest.mark.nightly
@pytest.mark.alone  # this answer has 20 ms before its own alarm goes off
@pytest.mark.parametrize(("way", "kind"), CELLS, indirect=["way"])
async def test_an_answer_whose_alarm_goes_off_is_accepted(client: SandboxClient, kind: str) -> None:
    await check_accepted(
        client, kind, {"alarm": RIGHT["alarm"].replace("ITIMER_REAL, 20", "ITIMER_REAL, 0.02")}
    )


async def check_accepted(client: SandboxClient, kind: str, answers: Mapping[str, str]) -> None:
    statuses = await verdicts(client, LISTS[kind], answers)
    assert {
        name: (v.final_status, v.detail, v.first_failed_case)
        for name, v in statuses.items()
        if not v.accepted
    } == {}
