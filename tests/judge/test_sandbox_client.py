import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.judge import sandbox as module
from services.judge.sandbox import Attempts, RunCode, SandboxClient, SandboxUnavailableError

REQUEST = RunCode(
    code="print(1)",
    language="python",
    stdin="in",
    compile_timeout=3.0,
    run_timeout=2.0,
    memory_limit_mb=64,
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


def said(status: int, body: object = "", **headers: str) -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, str):
            return web.Response(status=status, text=body, headers=named)
        return web.json_response(body, status=status, headers=named)

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
    """A sandbox that gives its answers one after the other, the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.times.append(time.monotonic())
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
    async def start(*answers: Answer, port: int | None = None) -> StandIn:
        stand_in = StandIn(*answers)
        app = web.Application()
        app.router.add_post("/run_code", stand_in.handle)
        server = TestServer(app, port=port)
        await server.start_server()
        stack.push_async_callback(server.close)
        stand_in.url = str(server.make_url("")).rstrip("/")
        return stand_in

    return start


@pytest.fixture
def client(stack: AsyncExitStack) -> Callable[..., Awaitable[SandboxClient]]:
    async def client(*urls: str, max_attempts: int = 3, retry_budget: float = 30) -> SandboxClient:
        made = SandboxClient(urls, max_attempts=max_attempts, retry_budget=retry_budget)
        return await stack.enter_async_context(made)

    return client


Client = Callable[..., Awaitable[SandboxClient]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_DELAY", 0.001)


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
        (said(429), "http_429"),
        (said(502), "http_502"),
        (said(504), "http_504"),
        (said(500, "it broke"), "http_500: it broke"),
        (said(200, {"status": "SandboxError", "message": "out of pids"}), "out of pids"),
        (said(200, "<html>"), "unusable answer: <html>"),
        (said(200, ""), "unusable answer"),
        (said(200, {"status": "Perfect"}), "unusable answer"),
        (said(200, [1]), "unusable answer"),
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
    assert all(reason in failure for failure in attempts.failures)


async def test_a_busy_sandbox_says_when_to_come_again(start: Start, client: Client) -> None:
    server = await start(said(503, Retry_After="0.4"), GOOD_ANSWER)
    await (await client(server.url)).run_code(REQUEST, Attempts())
    # Jittered by half of it either way.
    assert 0.19 < server.times[1] - server.times[0] < 5


async def test_a_retry_after_that_is_no_number_is_passed_over(start: Start, client: Client) -> None:
    server = await start(said(503, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"), GOOD_ANSWER)
    assert (await (await client(server.url)).run_code(REQUEST, Attempts())).status == "Success"


async def test_a_long_retry_after_is_not_waited_for(start: Start, client: Client) -> None:
    """It is beyond the budget: no use in waiting until that is spent."""
    server = await start(said(503, Retry_After="600"))
    began = time.monotonic()
    error = await failed(await client(server.url, retry_budget=5), Attempts())
    assert error.reasons == ("http_503",)
    assert time.monotonic() - began < 5


async def test_a_sandbox_that_is_away_comes_back(start: Start, client: Client) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    attempts = Attempts()
    asking = asyncio.create_task(
        (await client(f"http://127.0.0.1:{port}", max_attempts=1)).run_code(REQUEST, attempts)
    )
    while len(attempts.failures) < 2:
        await asyncio.sleep(0)
        assert not asking.done()
    await start(GOOD_ANSWER, port=port)
    assert (await asking).status == "Success"
    assert all("ClientConnectorError" in reason for reason in attempts.failures)


async def test_a_broken_sandbox_is_given_up(start: Start, client: Client) -> None:
    server = await start(said(500, "one"), said(500, "two"), said(500, "three"))
    attempts = Attempts()
    error = await failed(await client(server.url, max_attempts=3), attempts)
    assert error.reasons == ("http_500: one", "http_500: two", "http_500: three")
    assert str(error) == "http_500: three"
    assert attempts == Attempts(3, list(error.reasons))
    assert len(server.asked) == 3


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
    began = time.monotonic()
    error = await failed(await client(server.url, retry_budget=0.3), attempts)
    assert time.monotonic() - began < 5
    assert set(error.reasons) == {"http_503"}
    assert attempts.requests == len(error.reasons) > 2


async def test_without_a_budget_there_is_one_attempt(start: Start, client: Client) -> None:
    server = await start(said(503))
    await failed(await client(server.url, retry_budget=0), Attempts())
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
async def test_a_rejected_request_is_not_made_again(
    start: Start, client: Client, status: int
) -> None:
    server = await start(said(status, "what is wrong"), GOOD_ANSWER)
    attempts = Attempts()
    error = await failed(await client(server.url), attempts)
    assert error.reasons == (f"http_{status}: what is wrong",)
    assert attempts.requests == len(server.asked) == 1


async def test_a_long_answer_is_cut_in_the_reason(start: Start, client: Client) -> None:
    server = await start(said(500, "x" * 100_000))
    error = await failed(await client(server.url, max_attempts=1), Attempts())
    assert len(str(error)) < 300


async def test_a_sandbox_that_never_answers(
    start: Start, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SLACK", -4.9)
    release = asyncio.Event()

    async def hang(_request: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    server = await start(hang)
    error = await failed(await client(server.url, max_attempts=2), Attempts())
    release.set()
    assert len(error.reasons) == 2
    assert all("read_timeout" in reason for reason in error.reasons)


async def test_a_sandbox_that_cannot_be_connected_to_is_away_and_not_broken(
    start: Start, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that drops packets: nothing is known of the request, and nothing was read."""
    server = await start(GOOD_ANSWER)
    asking = await client(server.url, max_attempts=1)
    post, failures = asking._session.post, [aiohttp.ConnectionTimeoutError("no answer to SYN")]

    def unreachable(*arguments: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return post(*arguments, **named)

    monkeypatch.setattr(asking._session, "post", unreachable)
    attempts = Attempts()
    assert (await asking.run_code(REQUEST, attempts)).status == "Success"
    assert "read_timeout" not in attempts.failures[0]


def test_the_deadline_leaves_time_in_the_queue() -> None:
    assert REQUEST.deadline > REQUEST.compile_timeout + REQUEST.run_timeout + 30


async def test_the_delays_grow(
    start: Start, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_DELAY", 0.02)
    monkeypatch.setattr(module.random, "uniform", lambda _a, _b: 1.0)
    server = await start(*[said(503)] * 5, GOOD_ANSWER)
    await (await client(server.url)).run_code(REQUEST, Attempts())
    delays = [b - a for a, b in zip(server.times, server.times[1:], strict=False)]
    assert all(delay >= 0.02 * 2**number * 0.95 for number, delay in enumerate(delays)), delays


async def test_two_sandboxes_share_the_load(start: Start, client: Client) -> None:
    waiting = [0, 0]
    full, release = asyncio.Event(), asyncio.Event()

    def slow(number: int) -> Answer:
        async def answer(_request: web.Request) -> web.StreamResponse:
            waiting[number] += 1
            if sum(waiting) == 20:
                full.set()
            await release.wait()
            return web.json_response(GOOD)

        return answer

    servers = [await start(slow(0)), await start(slow(1))]
    both = await client(*(server.url for server in servers))
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(both.run_code(REQUEST, Attempts()))
        await full.wait()
        assert waiting == [10, 10]
        release.set()


async def test_a_slow_sandbox_gets_less(start: Start, client: Client) -> None:
    release = asyncio.Event()

    async def stuck(_request: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.json_response(GOOD)

    slow, quick = await start(stuck), await start(GOOD_ANSWER)
    both = await client(slow.url, quick.url)
    first = asyncio.create_task(both.run_code(REQUEST, Attempts()))
    while not slow.asked:
        await asyncio.sleep(0)
    for _ in range(5):
        await both.run_code(REQUEST, Attempts())
    assert (len(slow.asked), len(quick.asked)) == (1, 5)
    release.set()
    await first


async def test_two_sandboxes_take_turns(start: Start, client: Client) -> None:
    """A worker has few calls in flight; workers that all prefer the first leave the others idle."""
    servers = [await start(GOOD_ANSWER), await start(GOOD_ANSWER)]
    both = await client(*(server.url for server in servers))
    for _ in range(20):
        await both.run_code(REQUEST, Attempts())
    assert min(len(server.asked) for server in servers) >= 5


async def test_with_one_sandbox_dead_the_other_one_does_the_work(
    start: Start, client: Client
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
        alive = await start(GOOD_ANSWER)
        both = await client(dead, alive.url, retry_budget=1)
        assert (await both.run_code(REQUEST, Attempts())).status == "Success"
