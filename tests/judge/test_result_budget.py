"""Outputs below the limit are judged whatever their sum, on both ways into a sandbox."""

from collections.abc import AsyncIterator

import pytest

from services.judge.requests import Attempts
from services.judge.sandbox import SandboxClient
from shared.harness.wire import CaseLimits, RunCasesRequest
from tests.judge.pools import OpenPool
from tests.judge.stand_ins import WithoutCases
from tests.judge.tasks import fenced, make_task, stdio, verdict_of
from tests.sandboxes import own_sandbox

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
    task = make_task(client, stdio(*cases), fenced(PRINT), "judge.max_output_mb=4")
    verdict = await verdict_of(task)
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


@pytest.mark.parametrize(
    "settings",
    [
        {"PLUMBLINE_SANDBOX_FETCH_LIMIT_BYTES": str(4 * MIB)},
        {"PLUMBLINE_SANDBOX_FILE_LIMIT_BYTES": str(4 * MIB)},
        {"PLUMBLINE_SANDBOX_OUTPUT_LIMIT_BYTES": "1000"},
    ],
    ids=lambda settings: next(iter(settings)).removeprefix("PLUMBLINE_SANDBOX_"),
)
async def test_sandboxes_with_other_limits(
    tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]
):
    """Several outputs that are too large together."""
    with own_sandbox(tmp_path_factory.mktemp("sandbox"), **settings) as url:
        async with WithoutCases(OpenPool([url]), max_attempts=1, retry_budget=5) as client:
            cases = [(str(n), ("x" * 99 + " ") * (n * 10_000)) for n in (1, 2, 2, 1)]
            verdict = await verdict_of(make_task(client, stdio(*cases), fenced(PRINT)))
            assert verdict.case_codes == [1] * 4
            cases = [(n, "0") for n in ("2", "2", "2")]
            verdict = await verdict_of(make_task(client, stdio(*cases), fenced(RANDOM)))
            assert verdict.case_codes == [0] * 3
