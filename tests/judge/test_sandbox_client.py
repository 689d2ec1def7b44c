"""Client of sandboxes: retries, permits, and the choice between ``/run_cases`` and the harness."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.judge.sandbox import Attempts, SandboxClient, SandboxUnavailableError
from services.sandbox.app import create_app
from services.sandbox.settings import IsolationChoice, SandboxSettings
from shared.harness.sandbox_api import (
    RunCodeRequest,
    RunCodeResponse,
    SubmitConfig,
    SubmitRequest,
)
from shared.harness.wire import (
    RUN_CASES_VERSION,
    CallResult,
    CaseLimits,
    RunCasesRequest,
)
from shared.schemas import InfraFailure
from tests.judge.pools import OpenPool
from tests.judge.stand_ins import WithoutCases
from tests.judge.tasks import judge_code, stdio

REQUEST = RunCodeRequest(
    code="print(1)",
    language="python",
    stdin="in",
    compile_timeout=3.0,
    run_timeout=2.0,
    memory_limit_MB=64,
)
GOOD: dict[str, Any] = {
    "status": "Success",
    "message": "",
    "compile_result": None,
    "run_result": {
        "status": "Finished",
        "execution_time": 0.1,
        "return_code": 0,
        "stdout": "1\n",
        "stderr": "",
    },
    "executor_pod_name": None,
    "files": {},
}

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def said(status: int, body: object = "") -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        if isinstance(body, str):
            return web.Response(status=status, text=body)
        return web.json_response(body, status=status)

    return answer


GOOD_ANSWER = said(200, GOOD)


async def torn(request: web.Request) -> web.StreamResponse:
    """Half of what was announced, then the connection ends."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"status": "Succ')
    assert request.transport is not None
    request.transport.abort()
    return response


async def dropped(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class StandIn:
    """A sandbox that gives its answers one after the other, then always the last one."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        self.asked.append(await request.json())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


Start = Callable[..., Awaitable[StandIn]]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start(stack: AsyncExitStack) -> Start:
    async def start(*answers: Answer) -> StandIn:
        stand_in = StandIn(*answers)
        app = web.Application()
        for path in ("/run_code", "/submit"):
            app.router.add_post(path, stand_in.handle)
        server = TestServer(app)
        await server.start_server()
        stack.push_async_callback(server.close)
        stand_in.url = str(server.make_url("")).rstrip("/")
        return stand_in

    return start


@pytest.fixture
def pool() -> OpenPool:
    return OpenPool([])


@pytest.fixture
def client(stack: AsyncExitStack, pool: OpenPool) -> Callable[..., Awaitable[SandboxClient]]:
    async def client(
        *urls: str,
        max_attempts: int = 3,
        retry_budget: float = 30,
        **timings: Any,
    ) -> SandboxClient:
        pool.urls = list(urls)
        made = SandboxClient(
            pool,
            max_attempts=max_attempts,
            retry_budget=retry_budget,
            **{"first_delay": 0.001, **timings},
        )
        return await stack.enter_async_context(made)

    return client


Client = Callable[..., Awaitable[SandboxClient]]


def failures(*texts: str) -> tuple[InfraFailure, ...]:
    return tuple(map(InfraFailure.model_validate, texts))


async def failed(client: SandboxClient, attempts: Attempts) -> SandboxUnavailableError:
    with pytest.raises(SandboxUnavailableError) as caught:
        await client.run_code(REQUEST, attempts)
    return caught.value


async def test_a_request_and_its_answer(start: Start, client: Client) -> None:
    server = await start(GOOD_ANSWER)
    attempts = Attempts()
    answer = await (await client(server.url)).run_code(REQUEST, attempts)
    assert answer.run_result is not None
    assert answer.run_result.stdout == "1\n"
    assert server.asked == [
        {
            "code": "print(1)",
            "language": "python",
            "stdin": "in",
            "compile_timeout": 3.0,
            "run_timeout": 2.0,
            "memory_limit_MB": 64,
            "files": {},
            "fetch_files": [],
        }
    ]
    assert attempts == Attempts(requests=1, failures=[])


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (said(503), "http_503"),
        (said(500, "it broke"), "http_500: it broke"),
        (said(200, {"status": "SandboxError", "message": "out of pids"}), "out of pids"),
        (said(200, "<html>"), "unusable answer: <html>"),
        (said(200, {"status": "Perfect"}), "unusable answer"),
        (said(200, [1]), "unusable answer"),
        (said(200), "unusable answer"),
        (torn, "ClientPayloadError"),
        (dropped, "ServerDisconnectedError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_fault_is_tried_again(
    start: Start, client: Client, fault: Answer, reason: str
) -> None:
    server = await start(fault, fault, GOOD_ANSWER)
    attempts = Attempts()
    answer = await (await client(server.url)).run_code(REQUEST, attempts)
    assert answer.status == "Success"
    assert attempts.requests == len(server.asked) == 3
    assert len(attempts.failures) == 2
    assert all(reason in str(failure) for failure in attempts.failures)


async def test_a_busy_sandbox_is_no_broken_one(start: Start, client: Client) -> None:
    """``max_attempts`` is for what breaks; being busy is limited by time alone."""
    server = await start(*[said(503)] * 6, said(500), GOOD_ANSWER)
    attempts = Attempts()
    answer = await (await client(server.url, max_attempts=2)).run_code(REQUEST, attempts)
    assert answer.status == "Success"
    assert attempts.requests == 8


async def test_a_sandbox_that_stays_busy_is_given_up_in_time(start: Start, client: Client) -> None:
    server = await start(said(503))
    attempts = Attempts()
    error = await failed(await client(server.url, retry_budget=0.3), attempts)
    assert set(map(str, error.failures)) == {"http_503"}
    assert attempts.requests == len(error.failures) > 2


@pytest.mark.parametrize("status", [404, 422])
async def test_a_rejected_request_is_not_made_again(
    start: Start, client: Client, status: int
) -> None:
    server = await start(said(status, "what is wrong"), GOOD_ANSWER)
    attempts = Attempts()
    error = await failed(await client(server.url), attempts)
    assert error.failures == failures(f"http_{status}: what is wrong")
    assert attempts.requests == len(server.asked) == 1


async def test_a_sandbox_that_never_answers(start: Start, client: Client) -> None:
    release = asyncio.Event()

    async def hang(_request: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    server = await start(hang)
    error = await failed(await client(server.url, max_attempts=2, queueing=-4.9), Attempts())
    release.set()
    assert len(error.failures) == 2
    assert {failure.kind for failure in error.failures} == {"read_timeout"}


# Permits


async def test_the_sandbox_that_failed_is_avoided(
    start: Start, client: Client, pool: OpenPool
) -> None:
    one, other = await start(said(503)), await start(said(500), GOOD_ANSWER)
    await (await client(one.url, other.url)).run_code(REQUEST, Attempts())
    assert [grant.avoid for grant in pool.grants[:2]] == [None, one.url]
    assert [grant.permit.url for grant in pool.grants[:2]] == [one.url, other.url]
    assert pool.grants[2].avoid == other.url


async def test_a_permit_is_held_while_the_sandbox_works_and_not_between_attempts(
    start: Start, client: Client, pool: OpenPool
) -> None:
    held: list[int] = []

    async def answer(_request: web.Request) -> web.StreamResponse:
        held.append(pool.held)
        return web.Response(status=503, headers={"Retry-After": "20"})

    server = await start(answer)
    attempts = Attempts()
    asking = asyncio.create_task((await client(server.url)).run_code(REQUEST, attempts))
    while not attempts.failures:
        await asyncio.sleep(0)
    assert (held, pool.held) == ([1], 0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


# The data-set API


SUBMIT = SubmitRequest(dataset="d", id=0, completion="c", config=SubmitConfig(language="python"))


async def test_a_submit_and_its_answer(start: Start, client: Client, pool: OpenPool) -> None:
    test = {"passed": True, "exec_info": GOOD, "test_info": {"input": {}}}
    body = {"id": 0, "accepted": True, "extracted_code": "x", "tests": [test], "full_code": None}
    server = await start(said(503), said(200, body))
    attempts = Attempts()
    answer = await (await client(server.url)).submit(SUBMIT, 12.0, attempts, alone=True)
    assert answer.accepted
    assert answer.tests[0].passed
    assert answer.tests[0].exec_info == RunCodeResponse.model_validate(GOOD)
    assert server.paths == ["/submit"] * 2
    sent = server.asked[1]
    assert (sent["dataset"], sent["id"], sent["completion"]) == ("d", 0, "c")
    assert sent["config"]["language"] == "python"
    assert attempts == Attempts(2, list(failures("http_503")))
    assert [grant.exclusive for grant in pool.grants] == [True, True]
    assert [grant.permit.paused for grant in pool.grants] == [0, None]


# Calls of many cases: by ``/run_cases`` where a sandbox announces it


LIMITS = CaseLimits(cpu=5, wall=10, compile=30, budget=60, memory=1 << 30, output=1 << 20)
CALL = RunCasesRequest(code="print(input()[::-1])", inputs=["ab", "cd"], limits=LIMITS)
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
async def sandbox(stack: AsyncExitStack) -> Recorded:
    sandbox = Recorded()
    await sandbox.start(stack)
    return sandbox


def printed(result: CallResult) -> list[bytes]:
    assert result.end == "done"
    assert result.compile_seconds is not None and 0 < result.compile_seconds < 30
    return [case.stdout for case in result.cases.values()]


async def test_a_sandbox_that_offers_cases_gets_them(client: Client, sandbox: Recorded):
    sandboxes = await client(sandbox.url, connect=2)
    for _ in range(2):
        assert printed(await sandboxes.run_cases(CALL, Attempts())) == PRINTED
    assert sandbox.asked == ["HEAD /run_cases", "POST /run_cases", "POST /run_cases"]


@pytest.mark.parametrize("offers", [None, "3"])
async def test_any_other_sandbox_gets_the_harness(
    client: Client, sandbox: Recorded, offers: str | None
):
    """A SandboxFusion (404), or a later version of the endpoint."""
    sandbox.offers = offers
    sandboxes = await client(sandbox.url, connect=2)
    for _ in range(2):
        assert printed(await sandboxes.run_cases(CALL, Attempts())) == PRINTED
    assert sandbox.asked == ["HEAD /run_cases", "POST /run_code", "POST /run_code"]


async def test_a_sandbox_replaced_by_one_without_cases(client: Client, sandbox: Recorded):
    sandboxes = await client(sandbox.url, connect=2)
    assert printed(await sandboxes.run_cases(CALL, Attempts())) == PRINTED
    sandbox.offers = None
    for _ in range(2):
        assert printed(await sandboxes.run_cases(CALL, Attempts())) == PRINTED
    assert sandbox.asked[2:] == [
        "POST /run_cases", "POST /run_code", "HEAD /run_cases", "POST /run_code",
    ]  # fmt: skip


async def test_all_sandboxes_of_a_pool_must_offer_cases(
    stack: AsyncExitStack, client: Client, sandbox: Recorded
):
    other = Recorded()
    await other.start(stack)
    other.offers = None
    sandboxes = await client(sandbox.url, other.url, connect=2)
    for _ in range(2):
        assert printed(await sandboxes.run_cases(CALL, Attempts())) == PRINTED
    assert "POST /run_cases" not in sandbox.asked + other.asked


# Outputs below the limit are judged whatever their sum, on both ways into a sandbox


MIB = 1024 * 1024
LARGE = CaseLimits(cpu=30, wall=60, compile=30, budget=300, memory=2 << 30, output=64 * MIB)


@pytest.fixture(params=[SandboxClient, WithoutCases])
async def large_client(
    request: pytest.FixtureRequest, sandbox_url: str
) -> AsyncIterator[SandboxClient]:
    pool = OpenPool([sandbox_url])
    async with request.param(pool, max_attempts=2, retry_budget=30) as client:
        yield client


PRINT = "import os, sys\nprint(('x' * 99 + ' ') * (int(input()) * 10_000))"
RANDOM = "import os, sys\nsys.stdout.write(os.urandom(int(input()) * 500_000).hex())"


async def test_above_the_limit(large_client: SandboxClient):
    cases = [("1", "x"), ("5", "x"), ("1", "x")]
    verdict = await judge_code(large_client, stdio(*cases), PRINT, "judge.max_output_mb=4")
    assert (verdict.case_codes, verdict.detail) == ([0, -2, 0], "output_limit")


async def test_a_call_has_no_more_results_than_it_may(large_client: SandboxClient):
    request = RunCasesRequest(code=RANDOM, inputs=["3", "3", "3"], limits=LARGE)
    request.limits = replace(LARGE, results=2 * MIB)
    result = await large_client.run_cases(request, Attempts())
    assert (result.end, list(result.cases)) == ("full", [0])
    request.limits = replace(LARGE, results=0)
    result = await large_client.run_cases(request, Attempts())
    assert (result.end, list(result.cases)) == ("full", [0])
    assert len(result.cases[0].stdout) == 3_000_000
