"""The client: requests, checks before a run, retries, backpressure, load balancing."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from services.runner.admission import Server
from services.runner.client import GeneratorClient
from services.runner.responses import read_completion
from shared.errors import ServiceError
from shared.schemas import sha256
from shared.statuses import TokenSource
from tests.runner.generators import (
    FIELDS,
    MESSAGES,
    SAMPLE,
    Handler,
    Servers,
    answer,
    ask,
    refused_url,
)
from tests.waiting import eventually


@pytest.mark.parametrize("suffix", ["", "/v1/", "/v1/chat/completions"])
async def test_an_answer_becomes_a_generation(servers: Servers, suffix: str) -> None:
    url = await servers.replay()
    generation = await ask(await servers.client(url + suffix))
    assert generation.sample == SAMPLE
    assert generation.completion == "print(1 + 1)"
    assert generation.completion_sha256 == sha256("print(1 + 1)")
    assert generation.finish_reason == "stop"
    assert (generation.prompt_tokens, generation.output_tokens) == (4, 7)
    assert generation.replica == url.removeprefix("http://")
    assert (generation.requests, generation.error) == (1, None)
    assert generation.gen_time is not None and 0 < generation.gen_time < 10
    assert generation.finished_at is not None


async def test_what_is_sent(servers: Servers) -> None:
    seen: list[tuple[dict[str, Any], Mapping[str, str]]] = []

    async def chat(request: web.Request) -> web.Response:
        seen.append((await request.json(), request.headers))
        response = answer()
        response.headers["X-Plumbline-Replica"] = "replica-0"
        return response

    client = await servers.client(await servers.stand_in(chat), model="m", api_key="key\n")
    generation = await ask(client, seed=3)
    ((sent, headers),) = seen
    assert sent == {"model": "m", "messages": MESSAGES, **FIELDS, "seed": 3}
    assert (generation.seed, generation.replica) == (3, "replica-0")
    assert headers["X-Request-Id"] == "run/d%2F1/p%201/2"
    assert headers["Authorization"] == "Bearer key"


async def test_who_counted_the_tokens(servers: Servers) -> None:
    """The replay backend marks its estimate; another server's field of this name is ignored."""
    recorded = await servers.replay(replay_completions=servers.recording(output_tokens=None))
    generation = await ask(await servers.client(recorded))
    assert (generation.output_tokens, generation.output_tokens_from) == (3, TokenSource.ESTIMATE)
    for named in ("somebody", 1, ["tokenizer"], None):
        usage = {"completion_tokens": 9, "completion_tokens_from": named}
        response = answer(usage=usage).body
        assert isinstance(response, bytes)
        completion = read_completion(200, {}, response)
        assert (completion.output_tokens, completion.output_tokens_from) == (9, None)


# Models


async def test_check_returns_the_model(servers: Servers) -> None:
    url = await servers.replay(model="m")
    assert await (await servers.client(url, model="m")).check() == "m"
    unnamed = await servers.client(url, url, model="")
    assert await unnamed.check() == "m"
    assert (await ask(unnamed)).error is None


@pytest.mark.parametrize("path", ["/api/paas/v4", "/v1beta/openai"])
def test_another_version_in_an_address_stays(path: str) -> None:
    assert Server(f"https://host{path}/", backoff=1.0).url == f"https://host{path}"


async def test_a_long_list_of_models_without_an_object_around_it(servers: Servers) -> None:
    async def models(_request: web.Request) -> web.Response:
        return web.json_response([{"id": "m", "description": "x" * 2**20}])

    assert await (await servers.client(await servers.stand_in(models=models), model="m")).check()


async def test_check_with_a_wrong_key(servers: Servers) -> None:
    url = await servers.replay(token="right")
    assert await (await servers.client(url, api_key="right")).check() == "replay"
    await complains(await servers.client(url, api_key="wrong"), "API key")
    await complains(await servers.client(url), "API key")


async def complains(client: GeneratorClient, message: str) -> None:
    with pytest.raises(ServiceError) as raised:
        await client.check()
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


# GET /info


INFO = {"backend": "verl", "model": "m", "chat_template_sha256": "aa", "engine": {"dtype": "half"}}


def replying(text: str | bytes, status: int = 200) -> Handler:
    async def info(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer key"
        body = text.encode() if isinstance(text, str) else text
        return web.Response(body=body, status=status)

    return info


async def test_info_of_several_servers_by_url(servers: Servers) -> None:
    informative = await servers.stand_in(info=replying(json.dumps(INFO)))
    silent = await servers.stand_in()
    alone = await servers.client(f"{informative}/v1/", api_key="key")
    assert await alone.info() == INFO
    client = await servers.client(informative, silent, api_key="key")
    assert await client.info() == {f"{informative}/v1": INFO, f"{silent}/v1": None}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("{}", 404),
        ("[1]", 200),
        (b"\xff", 200),
        ('{"a": NaN}', 200),
        ('{"a":' * 100_000, 200),
        (json.dumps({"a": "x" * 2**20}), 200),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_info_that_is_not_a_json_object_is_ignored(
    servers: Servers, text: str | bytes, status: int
) -> None:
    url = await servers.stand_in(info=replying(text, status))
    assert await (await servers.client(url, api_key="key")).info() is None


# Retries and backpressure


async def test_a_hanging_request_is_retried(servers: Servers) -> None:
    client = await servers.client(await servers.replay("hang"), request_timeout=0.8)
    generation = await ask(client)
    assert (generation.completion, generation.requests) == ("print(1 + 1)", 2)
    # The time of the request that succeeded, not of the one that hung.
    assert generation.gen_time is not None and generation.gen_time < 0.8


VLLM = [
    # 0.24 to 0.32: of tokens, and of characters where those alone are too many
    "This model's maximum context length is 4096 tokens. However, you requested 2048 output tokens "
    "and your prompt contains at least 2049 input tokens, for a total of at least 4097 tokens. "
    "Please reduce the length of the input prompt or the number of requested output tokens.",
    "This model's maximum context length is 4096 tokens. However, you requested 2048 output tokens "
    "and your prompt contains 900000 characters (more than 262144 characters, which is the upper "
    "bound for 2048 input tokens). Please reduce the length of the input prompt or the number of "
    "requested output tokens.",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure "
    "that `max_model_len` is no smaller than the number of text tokens.",
    "The decoder prompt (length 4096) plus the number of requested output tokens (at least 1) is "
    "longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller "
    "than the number of text tokens (prompt + requested output tokens).",
    "Input length (5000) exceeds model's maximum context length (4096).",
]
SGLANG = [
    "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
    "Requested token count exceeds the model's maximum context length of 4096 tokens. You "
    "requested a total of 5120 tokens: 3072 tokens from the input messages and 2048 tokens for the "
    "completion. Please reduce the number of tokens in the input messages or the completion to fit "
    "within the limit.",
    "Input length (4093 tokens) exceeds the maximum allowed length (4090 tokens). Use a shorter "
    "input or enable --allow-auto-truncate.",
]


async def test_messages_of_a_prompt_that_is_too_long(servers: Servers) -> None:
    """Both lengths are in the reason, which is all that run.json and the verdict have."""
    small = "max_tokens is too large: this model's maximum context length is 4 tokens"
    bodies: list[object] = []

    async def chat(_request: web.Request) -> web.Response:
        return web.json_response(bodies[-1], status=400)

    client = await servers.client(await servers.stand_in(chat))
    failures = []
    for message in (*VLLM, *SGLANG, small):
        flat = {"object": "error", "message": message, "type": "BadRequestError", "code": 400}
        for body in (flat, {"error": flat}):
            bodies.append(body)
            answer = await ask(client)
            given = answer.error, answer.completion, answer.requests
            if given != (f"prompt_too_long: {message}", "", 1):
                failures.append((body, given))
    assert failures == []


async def test_a_server_that_rejects_gets_fewer_requests(servers: Servers) -> None:
    """Five slots and no queue: the client finds that out, and a rejection is no attempt."""
    in_flight, most, refused = 0, 0, 0
    more = asyncio.Event()

    async def chat(_request: web.Request) -> web.Response:
        nonlocal in_flight, most, refused
        if in_flight >= 5:
            refused += 1
            return web.Response(status=429, headers={"Retry-After": "0.01"})
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.005)
        in_flight -= 1
        more.set()
        return answer()

    client = await servers.client(await servers.stand_in(chat), concurrency=64, max_attempts=1)
    generations = await asyncio.gather(*(ask(client) for _ in range(300)))
    assert all(generation.error is None for generation in generations)
    assert most == 5
    # Sixteen at once at first, eleven of them rejected; without a limit it would stay like that.
    assert refused < 100


async def test_a_dead_server_does_not_slow_down_another(servers: Servers) -> None:
    in_flight = 0
    many = asyncio.Event()

    async def chat(_request: web.Request) -> web.Response:
        nonlocal in_flight
        in_flight += 1
        if in_flight == 15:
            many.set()
        await many.wait()
        return answer()

    urls = refused_url(), await servers.stand_in(chat)
    client = await servers.client(*urls, concurrency=64)
    first = asyncio.create_task(ask(client))  # meets the dead one
    await eventually(lambda: in_flight == 1)
    async with asyncio.timeout(10):
        generations = await asyncio.gather(*(ask(client) for _ in range(40)))
    assert all(generation.error is None for generation in generations)
    assert (await first).requests == 2


async def test_a_busy_servers_request_goes_to_another(servers: Servers) -> None:
    # The first server asks for a minute; the second one answers at once.
    urls = [await servers.replay("503:60", once=False), await servers.replay()]
    client = await servers.client(*urls)
    async with asyncio.timeout(5):
        generations = [await ask(client) for _ in range(4)]
    assert [generation.requests for generation in generations] == [2, 1, 1, 1]
    assert {generation.replica for generation in generations} == {urls[1].removeprefix("http://")}


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
