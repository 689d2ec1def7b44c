"""Calls of many cases: the choice between ``/run_cases`` and the harness, and large outputs."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.judge.sandbox import Attempts, SandboxClient
from services.sandbox.app import create_app
from services.sandbox.settings import IsolationChoice, SandboxSettings
from shared.harness.wire import (
    RUN_CASES_VERSION,
    CallResult,
    CaseLimits,
    RunCasesRequest,
)
from tests.judge.pools import OpenPool
from tests.judge.stand_ins import WithoutCases
from tests.judge.tasks import judge_code, stdio

LIMITS = CaseLimits(cpu=5, wall=10, compile=30, budget=60, memory=1 << 30, output=1 << 20)
REQUEST = RunCasesRequest(code="print(input()[::-1])", inputs=["ab", "cd"], limits=LIMITS)
PRINTED = [b"ba\n", b"dc\n"]


class Recorded:
    """A real sandbox behind a list of the requests; ``offers`` may change at any time."""

    def __init__(self) -> None:
        self.offers: str | None = RUN_CASES_VERSION
        self.asked: list[str] = []
        self.answers: list[web.Response] = []
        self.url = ""

    async def start(self, stack: AsyncExitStack) -> None:
        app = create_app(SandboxSettings(isolation=IsolationChoice.AUTO, concurrency=1))
        app.middlewares.append(self._record)
        server = TestServer(app)
        await server.start_server()
        stack.push_async_callback(server.close)
        self.url = str(server.make_url("")).rstrip("/")

    @web.middleware
    async def _record(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        if request.path == "/run_cases":
            if self.offers is None:
                return web.json_response({"detail": "Not Found"}, status=404)
            if request.method == "HEAD":
                return web.Response(headers={"Plumbline-Run-Cases": self.offers})
            if self.answers:
                return self.answers.pop(0)
        response: web.StreamResponse = await handler(request)
        return response


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def sandbox(stack: AsyncExitStack) -> Recorded:
    sandbox = Recorded()
    await sandbox.start(stack)
    return sandbox


async def client_of(stack: AsyncExitStack, *urls: str) -> SandboxClient:
    client = SandboxClient(
        OpenPool(list(urls)), max_attempts=3, retry_budget=30, first_delay=0.001, connect=2
    )
    return await stack.enter_async_context(client)


def printed(result: CallResult) -> list[bytes]:
    assert result.end == "done"
    return [case.stdout for case in result.cases.values()]


async def test_the_time_of_compiling(stack: AsyncExitStack, sandbox: Recorded):
    client = await client_of(stack, sandbox.url)
    for offers in (RUN_CASES_VERSION, None):  # in a slot, and where the harness travels along
        sandbox.offers = offers
        result = await client.run_cases(REQUEST, Attempts())
        assert printed(result) == PRINTED
        assert result.compile_seconds is not None and 0 < result.compile_seconds < 30


async def test_a_sandbox_that_offers_cases_gets_them(stack: AsyncExitStack, sandbox: Recorded):
    client = await client_of(stack, sandbox.url)
    for _ in range(2):
        assert printed(await client.run_cases(REQUEST, Attempts())) == PRINTED
    assert sandbox.asked == ["HEAD /run_cases", "POST /run_cases", "POST /run_cases"]


@pytest.mark.parametrize("offers", [None, "3"])
async def test_any_other_sandbox_gets_the_harness(
    stack: AsyncExitStack, sandbox: Recorded, offers: str | None
):
    """A SandboxFusion (404), or a later version of the endpoint."""
    sandbox.offers = offers
    client = await client_of(stack, sandbox.url)
    for _ in range(2):
        assert printed(await client.run_cases(REQUEST, Attempts())) == PRINTED
    assert sandbox.asked == ["HEAD /run_cases", "POST /run_code", "POST /run_code"]


async def test_a_sandbox_replaced_by_one_without_cases(stack: AsyncExitStack, sandbox: Recorded):
    client = await client_of(stack, sandbox.url)
    assert printed(await client.run_cases(REQUEST, Attempts())) == PRINTED
    sandbox.offers = None
    for _ in range(2):
        assert printed(await client.run_cases(REQUEST, Attempts())) == PRINTED
    assert sandbox.asked[2:] == [
        "POST /run_cases", "POST /run_code", "HEAD /run_cases", "POST /run_code",
    ]  # fmt: skip


async def test_all_sandboxes_of_a_pool_must_offer_cases(stack: AsyncExitStack, sandbox: Recorded):
    other = Recorded()
    await other.start(stack)
    other.offers = None
    client = await client_of(stack, sandbox.url, other.url)
    for _ in range(2):
        assert printed(await client.run_cases(REQUEST, Attempts())) == PRINTED
    assert "POST /run_cases" not in sandbox.asked + other.asked


# Outputs below the limit are judged whatever their sum, on both ways into a sandbox


MIB = 1024 * 1024
LARGE = CaseLimits(cpu=30, wall=60, compile=30, budget=300, memory=2 << 30, output=64 * MIB)


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
    request = RunCasesRequest(code=RANDOM, inputs=["3", "3", "3"], limits=LARGE)
    request.limits = CaseLimits(**{**vars_of(LARGE), "results": 2 * MIB})
    result = await client.run_cases(request, Attempts())
    assert (result.end, list(result.cases)) == ("full", [0])
    request.limits = CaseLimits(**{**vars_of(LARGE), "results": 0})
    result = await client.run_cases(request, Attempts())
    assert (result.end, list(result.cases)) == ("full", [0])
    assert len(result.cases[0].stdout) == 3_000_000


def vars_of(limits: CaseLimits) -> dict[str, float]:
    return {name: getattr(limits, name) for name in CaseLimits.__slots__}
