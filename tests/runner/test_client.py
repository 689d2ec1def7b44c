"""Requests of the client, and its interpretation of responses."""

from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from services.runner.responses import read_completion
from shared.schemas import sha256
from shared.statuses import TokenSource
from tests.runner.generators import FIELDS, MESSAGES, SAMPLE, Servers, answer, ask


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
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
        return answer()

    client = await servers.client(await servers.stand_in(chat), model="m", api_key="key\n")
    generation = await ask(client, seed=3)
    ((sent, headers),) = seen
    assert sent == {"model": "m", "messages": MESSAGES, **FIELDS, "seed": 3}
    assert generation.seed == 3
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


async def test_lone_surrogates_are_replaced(servers: Servers) -> None:
    async def chat(_request: web.Request) -> web.Response:
        return answer("a\ud800b\U0001f600")

    generation = await ask(await servers.client(await servers.stand_in(chat)))
    assert generation.completion == "a\ufffdb\U0001f600"
    assert generation.completion_sha256 == sha256(generation.completion)
    assert generation.model_dump_json()
