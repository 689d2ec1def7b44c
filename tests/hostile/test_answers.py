"""Malicious answers, each judged next to a correct one, have no effect but their verdict."""

import asyncio
import json

import pytest

from services.judge.sandbox import SandboxClient
from shared.schemas import Verdict
from shared.statuses import FinalStatus
from tests.hostile.answers import ANSWERS, PRIES
from tests.hostile.machine import Machine
from tests.judge.tasks import judge_code, stdio

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


async def judge(sandbox: SandboxClient, code: str, *overrides: str) -> Verdict:
    return await judge_code(sandbox, stdio(*CASES), code, *overrides)


async def judge_good_one(sandbox: SandboxClient) -> str | None:
    verdict = await judge(sandbox, GOOD)
    right = verdict.final_status is FinalStatus.SUCCESS and verdict.infra_failures == []
    return None if right else f"the correct answer: {verdict}"


# The correct answer is judged beside so many, and after them.
AT_ONCE = 8
BATCHES = [list(ANSWERS)[start : start + AT_ONCE] for start in range(0, len(ANSWERS), AT_ONCE)]


@pytest.mark.parametrize("names", BATCHES, ids=range(len(BATCHES)))
async def test_only_verdicts_are_left(
    sandbox: SandboxClient, machine: Machine | None, isolated: bool, names: list[str]
) -> None:
    names = [name for name in names if isolated or not ANSWERS[name].dangerous]
    if not names:
        pytest.skip("needs a sandbox with a process namespace, or SANDBOX_HOSTILE=1")
    *verdicts, beside = await asyncio.gather(
        *(judge(sandbox, ANSWERS[name].code, *LIMITS) for name in names), judge_good_one(sandbox)
    )
    wrong = {
        name: verdict
        for name, verdict in zip(names, verdicts, strict=True)
        if verdict.final_status not in ANSWERS[name].verdicts
    }
    assert not wrong, wrong
    assert (beside, await judge_good_one(sandbox)) == (None, None), names
    if machine is not None:
        await machine.wait_until_clean()


async def test_nothing_of_the_harness_can_be_read(
    sandbox: SandboxClient, machine: Machine | None
) -> None:
    """The key of the results and the inputs of other cases are in there."""
    verdict = await judge_code(sandbox, stdio(("", "2 processes")), PRIES)
    assert verdict.accepted, json.dumps(verdict.model_dump(), indent=1, default=str)
    if machine is not None:
        await machine.wait_until_clean()
