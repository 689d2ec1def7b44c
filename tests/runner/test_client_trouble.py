"""What the client makes of servers in trouble, and how it shares requests among several."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web

from shared.schemas import sha256
from tests.runner.generators import Handler, Servers, answer, ask, refused_url


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(stack, tmp_path)


@pytest.mark.parametrize(
    "failure",
    ["500", "502", "503", "408", "429:0.01", "reset", "abort", "empty", "garbage", "truncated"],
)
async def test_passing_trouble_is_tried_again(servers: Servers, failure: str) -> None:
    client = await servers.client(await servers.replay(failure, failure))
    generation = await ask(client)
    assert (generation.completion, generation.error) == ("print(1 + 1)", None)
    assert generation.requests == 3


async def test_hanging_request_is_tried_again(servers: Servers) -> None:
    client = await servers.client(await servers.replay("hang"), request_timeout=0.8)
    generation = await ask(client)
    assert (generation.completion, generation.requests) == ("print(1 + 1)", 2)
    # The time of the request that succeeded, not of the one that hung.
    assert generation.gen_time is not None and generation.gen_time < 0.8


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("500", "http_500: injected"),
        ("429:0", "http_429: "),
        ("reset", "connection: "),
        ("truncated", "connection: "),
        ("hang", "timeout: "),
        ("abort", "abort: "),
        ("empty", "bad_answer: "),
        ("garbage", "bad_answer: not JSON: <html>"),
    ],
)
async def test_lasting_trouble_is_an_error_of_the_sample(
    servers: Servers, failure: str, reason: str
) -> None:
    url = await servers.replay(failure, failure)
    timeout = 0.3 if failure == "hang" else 10.0
    generation = await ask(await servers.client(url, max_attempts=2, request_timeout=timeout))
    assert generation.error is not None and generation.error.startswith(reason)
    assert (generation.completion, generation.completion_sha256) == ("", sha256(""))
    assert (generation.requests, generation.output_tokens) == (2, None)


async def test_server_that_is_down_is_an_error_of_the_sample(servers: Servers) -> None:
    generation = await ask(await servers.client(refused_url(), max_attempts=2))
    assert generation.error is not None and generation.error.startswith("connection: ")
    assert generation.requests == 2


@pytest.mark.parametrize("status", ["400", "401", "403", "404", "422"])
async def test_refusal_is_not_tried_again(servers: Servers, status: str) -> None:
    generation = await ask(await servers.client(await servers.replay(status)))
    assert generation.error == f"http_{status}: injected failure: HTTP {status}"
    assert (generation.completion, generation.requests) == ("", 1)


async def test_prompt_that_is_too_long(servers: Servers) -> None:
    generation = await ask(await servers.client(await servers.replay("too_long")))
    assert generation.error is not None
    assert generation.error.startswith("prompt_too_long: This model's maximum context length")
    assert generation.requests == 1


@pytest.mark.parametrize(
    "message",
    [
        "The decoder prompt (length 9) is longer than the maximum model length of 4.",
        "The input (9 tokens) is longer than the model's context length (4 tokens).",
        "max_tokens is too large: this model's maximum context length is 4 tokens",
    ],
)
async def test_other_words_for_too_long(servers: Servers, message: str) -> None:
    async def chat(_request: web.Request) -> web.Response:
        return web.json_response({"object": "error", "message": message}, status=400)

    generation = await ask(await servers.client(await servers.stand_in(chat)))
    assert generation.error == f"prompt_too_long: {message}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": {"message": "nested"}}', "nested"),
        ('{"error": "Unauthorized"}', "Unauthorized"),
        ('{"detail": "Not Found"}', "Not Found"),
        ("two\nlines", "two lines"),
        ("", "no message"),
    ],
)
async def test_error_bodies_of_all_kinds(servers: Servers, body: str, message: str) -> None:
    async def chat(_request: web.Request) -> web.Response:
        return web.Response(text=body, status=422)

    generation = await ask(await servers.client(await servers.stand_in(chat)))
    assert generation.error == f"http_422: {message}"


async def test_retry_after_is_waited_for(servers: Servers) -> None:
    client = await servers.client(await servers.replay("429:0.3"))
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert (await ask(client)).requests == 2
    assert loop.time() - started >= 0.3


async def test_retry_after_may_be_a_date(servers: Servers) -> None:
    busy = iter([True])

    async def chat(_request: web.Request) -> web.Response:
        if next(busy, False):
            return web.Response(status=503, headers={"Retry-After": formatdate(0, usegmt=True)})
        return answer()

    assert (await ask(await servers.client(await servers.stand_in(chat)))).requests == 2


async def test_concurrency_is_bounded_and_urls_share_the_load(servers: Servers) -> None:
    in_flight: dict[str, int] = {"a": 0, "b": 0}
    seen: list[tuple[int, int]] = []
    full = asyncio.Event()

    def handler(name: str) -> Handler:
        async def chat(_request: web.Request) -> web.Response:
            in_flight[name] += 1
            seen.append((in_flight["a"], in_flight["b"]))
            if sum(in_flight.values()) == 4:
                full.set()
            await full.wait()
            in_flight[name] -= 1
            return answer()

        return chat

    urls = [await servers.stand_in(handler(name)) for name in in_flight]
    client = await servers.client(*urls, concurrency=4)
    async with asyncio.timeout(20):
        generations = await asyncio.gather(*(ask(client) for _ in range(20)))
    assert all(generation.error is None for generation in generations)
    assert max(a + b for a, b in seen) == 4
    assert (2, 2) in seen


async def test_retry_goes_to_another_url(servers: Servers) -> None:
    # The first server would ask for a minute of patience: the second one answers at once.
    urls = [await servers.replay("503:60", "503:60"), await servers.replay()]
    client = await servers.client(*urls)
    async with asyncio.timeout(5):
        generations = [await ask(client) for _ in range(4)]
    assert [generation.requests for generation in generations] == [2, 1, 1, 1]
    assert {generation.replica for generation in generations} == {urls[1].removeprefix("http://")}


async def test_dead_url_beside_a_live_one(servers: Servers) -> None:
    client = await servers.client(refused_url(), await servers.replay(), concurrency=2)
    generations = await asyncio.gather(*(ask(client) for _ in range(50)))
    assert all(generation.error is None for generation in generations)
    assert sum(generation.requests for generation in generations) < 55
