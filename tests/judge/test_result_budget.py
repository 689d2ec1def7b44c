"""Outputs below the limit are judged whatever their sum, on both ways into a sandbox."""

from collections.abc import AsyncIterator

import pytest

from services.judge.requests import Attempts
from services.judge.sandbox import SandboxClient
from shared.harness.wire import CaseLimits, RunCasesRequest
from tests.judge.pools import OpenPool
from tests.judge.stand_ins import WithoutCases
from tests.judge.tasks import judge_code, stdio

MIB = 1024 * 1024
LIMITS = CaseLimits(cpu=30, wall=60, compile=30, budget=300, memory=2 << 30, output=64 * MIB)


@pytest.fixture(params=[SandboxClient, WithoutCases])
async def client(request: pytest.FixtureRequest, sandbox_url: str) -> AsyncIterator[SandboxClient]:
    pool = OpenPool([sandbox_url])
    async with request.param(pool, max_attempts=2, retry_budget=30) as client:
        yield client


PRINT = "import os, sys\nprint(('x' * 99 + ' ') * (int(input()) * 10_000))"
RANDOM = "import os, sys\nsys.stdout.write(os.urandom(int(input()) * 500_000).hex())"


async def test_above_the_limit(client: SandboxClient):
    cases = [("1", "x"), ("5", "x"), ("1", "x")]
    verdict = await judge_code(client, stdio(*cases), PRINT, "judge.max_output_mb=4")
    assert (verdict.case_codes, verdict.detail) == ([0, -2, 0], "output_limit")


async def test_a_call_has_no_more_results_than_it_may(client: SandboxClient):
    request = RunCasesRequest(code=RANDOM, inputs=["3", "3", "3"], limits=LIMITS)
    request.limits = CaseLimits(**{**vars_of(LIMITS), "results": 2 * MIB})
    result = await client.run_cases(request, Attempts())
    assert (result.end, list(result.cases)) == ("full", [0])
    request.limits = CaseLimits(**{**vars_of(LIMITS), "results": 0})
    result = await client.run_cases(request, Attempts())
    assert (result.end, list(result.cases)) == ("full", [0])
    assert len(result.cases[0].stdout) == 3_000_000


def vars_of(limits: CaseLimits) -> dict[str, float]:
    return {name: getattr(limits, name) for name in CaseLimits.__slots__}
