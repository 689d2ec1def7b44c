import asyncio
import contextlib
import json
import math
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
import sandbox_fusion as sdk
from aiohttp import web
from aiohttp.test_utils import TestServer
from sandbox_fusion import RunCodeResponse

from services.judge import fusion, sandbox
from services.judge.permits import CallOutcome
from services.judge.requests import (
    Attempts,
    RunCode,
    Submit,
    fetched,
)
from services.judge.sandbox import RetryTimings, SandboxClient, SandboxUnavailableError
from shared.foreign_json import JsonError
from shared.schemas import InfraFailure
from tests.judge.pools import OpenPool

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
        self.paths: list[str] = []
        self.times: list[float] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.times.append(time.monotonic())
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
    async def start(*answers: Answer, port: int | None = None) -> StandIn:
        stand_in = StandIn(*answers)
        app = web.Application()
        for path in ("/run_code", "/submit"):
            app.router.add_post(path, stand_in.handle)
        server = TestServer(app, port=port)
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
        clock: Callable[[], float] = time.monotonic,
        **timings: Any,
    ) -> SandboxClient:
        pool.urls = list(urls)
        made = SandboxClient(
            pool,
            max_attempts=max_attempts,
            retry_budget=retry_budget,
            timings=RetryTimings(**{"first_delay": 0.001, **timings}),
            clock=clock,
        )
        return await stack.enter_async_context(made)

    return client


Client = Callable[..., Awaitable[SandboxClient]]


def failures(*texts: str) -> tuple[InfraFailure, ...]:
    return tuple(map(InfraFailure.parse, texts))


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
    assert all(reason in str(failure) for failure in attempts.failures)


async def test_an_answer_has_a_limit(
    start: Start, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_MAX_ANSWER", 2**20)
    monkeypatch.setattr(sandbox, "_MAX_VALUES", 1000)
    many = said(200, GOOD | {"more": [0] * 1001})
    for lie, reason in ((said(200, "x" * 2**21), "larger than 1 MiB"), (many, "unusable answer")):
        server = await start(lie)
        with pytest.raises(SandboxUnavailableError, match=reason):
            await (await client(server.url, max_attempts=1)).run_code(REQUEST, Attempts())


async def test_a_busy_sandbox_says_when_to_come_again(start: Start, client: Client) -> None:
    server = await start(said(503, Retry_After="0.4"), GOOD_ANSWER)
    await (await client(server.url)).run_code(REQUEST, Attempts())
    assert 0.4 <= server.times[1] - server.times[0] < 5


async def test_no_jitter_undercuts_when_to_come_again(start: Start, client: Client) -> None:
    server = await start(said(503, Retry_After="0.2"), GOOD_ANSWER)
    await (await client(server.url, jitter=(0.5, 0.5))).run_code(REQUEST, Attempts())
    assert server.times[1] - server.times[0] >= 0.2


@pytest.mark.parametrize("header", ["-7", "-inf", "nan"])
async def test_a_retry_after_that_makes_no_sense_is_passed_over(
    start: Start, client: Client, pool: OpenPool, header: str
) -> None:
    server = await start(said(503, Retry_After=header), GOOD_ANSWER)
    await (await client(server.url)).run_code(REQUEST, Attempts())
    assert pool.grants[0].permit.retry_after == 0


async def test_a_retry_after_that_is_no_number_is_passed_over(start: Start, client: Client) -> None:
    server = await start(said(503, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"), GOOD_ANSWER)
    assert (await (await client(server.url)).run_code(REQUEST, Attempts())).status == "Success"


async def test_a_long_retry_after_is_not_waited_for(start: Start, client: Client) -> None:
    """It is beyond the budget: no use in waiting until that is spent."""
    server = await start(said(503, Retry_After="600"))
    error = await failed(await client(server.url, retry_budget=5), Attempts())
    assert error.failures == failures("http_503")


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
    assert {failure.kind for failure in attempts.failures} == {"ClientConnectorError"}


async def test_a_broken_sandbox_is_given_up(start: Start, client: Client) -> None:
    server = await start(said(500, "one"), said(500, "two"), said(500, "three"))
    attempts = Attempts()
    error = await failed(await client(server.url, max_attempts=3), attempts)
    assert error.failures == failures("http_500: one", "http_500: two", "http_500: three")
    assert str(error) == "http_500: three"
    assert attempts == Attempts(3, list(error.failures))
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
    error = await failed(await client(server.url, retry_budget=0.3), attempts)
    assert set(map(str, error.failures)) == {"http_503"}
    assert attempts.requests == len(error.failures) > 2


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
    assert error.failures == failures(f"http_{status}: what is wrong")
    assert attempts.requests == len(server.asked) == 1


async def test_a_long_answer_is_cut_in_the_reason(start: Start, client: Client) -> None:
    server = await start(said(500, "x" * 100_000))
    error = await failed(await client(server.url, max_attempts=1), Attempts())
    assert len(str(error)) < 300


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
    assert attempts.failures[0].kind == "ConnectionTimeoutError"


def test_the_deadline_leaves_time_in_the_queue() -> None:
    assert REQUEST.longest == REQUEST.compile_timeout + REQUEST.run_timeout
    assert RetryTimings().queueing > 30


async def test_the_delays_grow(start: Start, client: Client) -> None:
    server = await start(*[said(503)] * 5, GOOD_ANSWER)
    await (await client(server.url, first_delay=0.02, jitter=(1.0, 1.0))).run_code(
        REQUEST, Attempts()
    )
    delays = [b - a for a, b in zip(server.times, server.times[1:], strict=False)]
    assert all(delay >= 0.02 * 2**number * 0.95 for number, delay in enumerate(delays)), delays


async def test_with_one_sandbox_dead_the_other_one_does_the_work(
    start: Start, client: Client
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
        alive = await start(GOOD_ANSWER)
        both = await client(dead, alive.url, retry_budget=1)
        assert (await both.run_code(REQUEST, Attempts())).status == "Success"


# Permits


class Clock:
    """The client's clock, which stands still but where it is moved on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (GOOD_ANSWER, CallOutcome.OK),
        (said(429), CallOutcome.REJECTED),
        (said(502), CallOutcome.REJECTED),
        (said(503), CallOutcome.REJECTED),
        (said(504), CallOutcome.REJECTED),
        (torn, CallOutcome.BROKEN),
        (dropped, CallOutcome.BROKEN),
        (said(500), None),
        (said(200, "<html>"), None),
        (said(200, {"status": "SandboxError", "message": "x"}), None),
        (said(422), None),
    ],
)
async def test_what_the_pool_is_told(
    start: Start, client: Client, pool: OpenPool, answer: Answer, outcome: CallOutcome | None
) -> None:
    server = await start(answer, GOOD_ANSWER)
    with contextlib.suppress(SandboxUnavailableError):
        await (await client(server.url)).run_code(REQUEST, Attempts())
    assert pool.grants[0].permit.outcome == outcome
    assert pool.held == 0


async def test_the_pool_is_told_of_a_sandbox_that_never_answers(
    start: Start, client: Client, pool: OpenPool
) -> None:
    release = asyncio.Event()

    async def hang(_request: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    server = await start(hang)
    await failed(await client(server.url, max_attempts=1, queueing=-4.9), Attempts())
    release.set()
    assert [grant.permit.outcome for grant in pool.grants] == [CallOutcome.BROKEN]


async def test_the_pool_is_told_when_to_come_again(
    start: Start, client: Client, pool: OpenPool
) -> None:
    server = await start(said(503, Retry_After="0.25"), said(503, Retry_After="600"))
    await failed(await client(server.url, retry_budget=2), Attempts())
    assert [grant.permit.retry_after for grant in pool.grants] == [0.25, 30]


async def test_the_sandbox_that_failed_is_avoided(
    start: Start, client: Client, pool: OpenPool
) -> None:
    one, other = await start(said(503)), await start(said(500), GOOD_ANSWER)
    await (await client(one.url, other.url)).run_code(REQUEST, Attempts())
    assert [grant.avoid for grant in pool.grants[:2]] == [None, one.url]
    assert [grant.permit.url for grant in pool.grants[:2]] == [one.url, other.url]
    assert pool.grants[2].avoid == other.url


@pytest.mark.parametrize("alone", [False, True])
async def test_a_call_that_has_to_be_alone_is_so_each_time(
    start: Start, client: Client, pool: OpenPool, alone: bool
) -> None:
    server = await start(said(503), GOOD_ANSWER)
    await (await client(server.url)).run_code(REQUEST, Attempts(), alone=alone)
    assert [grant.exclusive for grant in pool.grants] == [alone, alone]


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


async def test_a_call_that_is_cancelled_gives_its_permit_back(
    start: Start, client: Client, pool: OpenPool
) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def hang(_request: web.Request) -> web.StreamResponse:
        asked.set()
        await release.wait()
        return web.Response()

    server = await start(hang)
    asking = asyncio.create_task((await client(server.url)).run_code(REQUEST, Attempts()))
    await asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    release.set()
    assert pool.held == 0
    assert pool.grants[0].permit.outcome is None


async def test_the_budget_is_counted_from_the_first_trouble(
    start: Start, client: Client, pool: OpenPool, clock: Clock
) -> None:
    """A fleet at work, which makes calls wait for permits, is no sandbox that is away."""

    async def late(_request: web.Request) -> web.StreamResponse:
        clock.now += 1000
        return web.Response(status=503)

    server = await start(late, GOOD_ANSWER)
    answer = await (await client(server.url, retry_budget=5, clock=clock)).run_code(
        REQUEST, Attempts()
    )
    assert answer.status == "Success"


# The data-set API


SUBMIT = Submit(
    dataset="d", id=0, completion="c", config={"language": "python"}, cases=7, timeout=2.0
)


async def test_a_submit_and_its_answer(start: Start, client: Client, pool: OpenPool) -> None:
    test = {"passed": True, "exec_info": GOOD, "test_info": {"input": {}}}
    body = {"id": 0, "accepted": True, "extracted_code": "x", "tests": [test], "full_code": None}
    server = await start(said(503), said(200, body))
    attempts = Attempts()
    answer = await (await client(server.url)).submit(SUBMIT, attempts, alone=True)
    assert (answer.accepted, answer.extracted_code) == (True, "x")
    assert answer.tests[0].passed
    assert answer.tests[0].exec_info == RunCodeResponse.parse_obj(GOOD)
    assert server.paths == ["/submit"] * 2
    sent = server.asked[1]
    assert (sent["dataset"], sent["id"], sent["completion"]) == ("d", 0, "c")
    assert sent["config"]["language"] == "python"
    assert attempts == Attempts(2, list(failures("http_503")))
    assert [grant.exclusive for grant in pool.grants] == [True, True]
    assert pool.grants[1].permit.outcome is CallOutcome.OK


@pytest.mark.parametrize("body", [{"accepted": True, "tests": [{}]}, {"tests": []}, [], "x"])
async def test_what_is_no_answer_to_a_submit(start: Start, client: Client, body: object) -> None:
    server = await start(said(200, body))
    with pytest.raises(SandboxUnavailableError, match="unusable answer"):
        await (await client(server.url, max_attempts=1)).submit(SUBMIT, Attempts())


@pytest.mark.parametrize(("status", "requests"), [(422, 1), (500, 2), (504, 2)])
async def test_what_a_server_says_to_a_submit_counts_as_for_any_call(
    start: Start, client: Client, status: int, requests: int
) -> None:
    server = await start(said(status, {"detail": "no"}))
    attempts = Attempts()
    with pytest.raises(SandboxUnavailableError) as caught:
        await (await client(server.url, max_attempts=2)).submit(SUBMIT, attempts)
    assert caught.value.failures[-1].kind == f"http_{status}"
    assert attempts.requests == requests


async def test_a_submit_has_the_headers_of_all_calls(start: Start) -> None:
    tokens: list[str | None] = []

    async def keep(request: web.Request) -> web.StreamResponse:
        tokens.append(request.headers.get("Authorization"))
        body = {"id": 0, "accepted": True, "extracted_code": "x", "tests": []}
        return web.json_response(body)

    server = await start(keep)
    headers = {"Authorization": "Bearer t"}
    async with SandboxClient(
        OpenPool([server.url]), max_attempts=1, retry_budget=1, headers=headers
    ) as client:
        await asyncio.gather(*(client.submit(SUBMIT, Attempts()) for _ in range(3)))
    assert tokens == ["Bearer t"] * 3


# Answers in the SDK's models


@pytest.mark.parametrize("answer", [GOOD, {"status": "Success", "message": ""}])
def test_what_is_read_is_what_the_sdk_makes_of_it(answer: dict[str, Any]) -> None:
    found = fusion.read_run_code(json.dumps(answer).encode())
    assert type(found) is RunCodeResponse
    assert found == RunCodeResponse.parse_obj(answer)


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "Done"},
        {"message": None},
        {"run_result": []},
        {"run_result": {"status": "Finished", "return_code": "x"}},
        {"run_result": {"status": "Finished", "return_code": math.inf}},
        {"run_result": {"status": "Finished", "execution_time": []}},
        {"run_result": {"return_code": 0}},
        {"compile_result": {"status": None}},
        {"files": "x"},
    ],
)
def test_what_the_sdk_would_not_take(wrong: dict[str, Any]) -> None:
    with pytest.raises(JsonError):
        fusion.read_run_code(json.dumps({**GOOD, **wrong}).encode())
    with pytest.raises(JsonError):
        fusion.read_run_code(b"[" * 100_000)


def test_a_request_is_as_the_sdk_describes_it() -> None:
    """But for the limit of memory, which only the server knows."""
    body = json.loads(fusion.run_code_body(REQUEST))
    assert body.pop("memory_limit_MB") == REQUEST.memory_limit_mb
    assert body == json.loads(sdk.RunCodeRequest(**body).json())
    sent = fusion.submit_request(SUBMIT)
    assert sent == sdk.SubmitRequest(**sent.dict())


def test_the_sdk_is_loaded_by_the_call_that_needs_it() -> None:
    """Loading it takes a tenth of a second, and most runs call ``/run_cases`` alone."""
    code = "import sys, services.judge.worker; sys.exit('sandbox_fusion' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_submit_has_time_for_all_its_cases() -> None:
    """Three at a time, each compiled and run: a hundred rounds of four seconds."""
    assert replace(SUBMIT, cases=300).longest == 400


# Fetched files


@pytest.mark.parametrize(
    ("files", "content"),
    [({"f": "eA=="}, b"x"), ({}, b""), ({"f": "A"}, b""), ({"f": "\u00e4"}, b"")],
)
def test_a_fetched_file(files: dict[str, str], content: bytes) -> None:
    assert fetched(RunCodeResponse.parse_obj({**GOOD, "files": files}), "f") == content
