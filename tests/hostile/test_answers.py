"""Malicious answers, each judged next to a correct one, have no effect but their verdict."""

import asyncio
import json

import pytest

from services.judge.sandbox import SandboxClient
from shared.schemas import Verdict
from shared.statuses import FinalStatus
from tests.hostile.answers import ANSWERS, PRIES
from tests.hostile.machine import Machine
from tests.judge.tasks import fenced, make_task, stdio, verdict_of

pytestmark = pytest.mark.hostile

CASES = (("1\n", "2\n"), ("2\n", "4\n"))
GOOD = """
import time
n = int(input())
while time.process_time() < 0.2: pass
open('note', 'x').close()
print(n * 2)
"""
LIMITS = (
    "sandbox.timeout=1",
    "sandbox.memory_limit_mb=256",
    "judge.wall_factor=2",
    "judge.cpu_grace=1",
    "judge.max_timeouts=1",
    "judge.max_output_mb=2",
    "judge.max_processes=32",
    "judge.call_seconds=2",
    "judge.compile_timeout=2",
    "judge.confirm_timeouts=false",
)
MOST_SECONDS = 60


async def judge(sandbox: SandboxClient, code: str, *overrides: str) -> Verdict:
    task = make_task(sandbox, stdio(*CASES), fenced(code), *overrides)
    return await verdict_of(task)


async def judge_beside_good_one(
    sandbox: SandboxClient, machine: Machine | None, code: str, *limits: str
) -> Verdict:
    async with asyncio.timeout(MOST_SECONDS):
        hostile, good = await asyncio.gather(judge(sandbox, code, *limits), judge(sandbox, GOOD))
    after = await judge(sandbox, GOOD)
    assert (good.final_status, after.final_status) == (FinalStatus.SUCCESS,) * 2
    assert good.infra_failures == after.infra_failures == []
    if machine is not None:
        await machine.wait_until_clean()
    return hostile


@pytest.mark.parametrize("name", ANSWERS)
async def test_only_a_verdict_is_left(
    sandbox: SandboxClient, machine: Machine | None, isolated: bool, name: str
) -> None:
    answer = ANSWERS[name]
    if answer.dangerous and not isolated:
        pytest.skip("needs a sandbox with a process namespace, or SANDBOX_HOSTILE=1")
    verdict = await judge_beside_good_one(sandbox, machine, answer.code, *LIMITS)
    assert verdict.final_status in answer.verdicts, verdict


async def test_input_that_nobody_reads(sandbox: SandboxClient, machine: Machine | None) -> None:
    problem = stdio(("1\n" * 4_000_000, "1\n"), ("", "1\n"))
    task = make_task(sandbox, problem, fenced("print(1)"), *LIMITS)
    assert (await verdict_of(task)).accepted
    if machine is not None:
        await machine.wait_until_clean()


async def test_nothing_of_the_harness_can_be_read(
    sandbox: SandboxClient, machine: Machine | None
) -> None:
    """The key of the results and the inputs of other cases are in there."""
    problem = stdio(("", "2 processes"))
    verdict = await verdict_of(make_task(sandbox, problem, fenced(PRIES)))
    assert verdict.accepted, json.dumps(verdict.model_dump(), indent=1, default=str)
    if machine is not None:
        await machine.wait_until_clean()
