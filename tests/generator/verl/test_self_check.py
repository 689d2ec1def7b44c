"""Self-check of engines with trained, random or broken models."""

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.generator.backends.verl.self_check import PROMPTS, check_self
from shared.errors import ServiceError

Answer = Callable[[dict[str, Any]], Awaitable[web.Response]]


async def serve(answer: Answer) -> TestServer:
    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    async def complete(request: web.Request) -> web.Response:
        return await answer(await request.json())

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/completions", complete)
    server = TestServer(app)
    await server.start_server()
    return server


def logprobs(values: list[float | None]) -> web.Response:
    return web.json_response({"choices": [{"logprobs": {"token_logprobs": values}}]})


@pytest.mark.parametrize(
    ("mean", "vocabulary", "random"),
    [(-0.3, 1000, False), (-6.5, 1000, True), (-6.5, None, False), (-3.4, 1000, False)],
)
async def test_what_looks_random(mean: float, vocabulary: int | None, random: bool) -> None:
    asked = []

    async def answer(request: dict[str, Any]) -> web.Response:
        asked.append(request)
        return logprobs([mean - 0.5, mean + 0.5, None])

    server = await serve(answer)
    found = await check_self(str(server.make_url("")).rstrip("/"), vocabulary)
    await server.close()
    assert found.mean_logprob == pytest.approx(mean)
    assert found.tokens == 2 * len(PROMPTS)
    assert found.looks_random is random
    assert found.chance == (None if vocabulary is None else pytest.approx(-math.log(vocabulary)))
    assert sorted(one["prompt"] for one in asked) == sorted(PROMPTS)
    assert {(one["model"], one["temperature"]) for one in asked} == {("m", 0)}


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=500),
        web.json_response({"choices": []}),
        web.json_response({"choices": [{"logprobs": None}]}),
        web.Response(text="no", content_type="application/json"),
    ],
    ids=["http_500", "no_choice", "no_logprobs", "no_json"],
)
async def test_an_engine_that_does_not_say(answer: web.Response) -> None:
    body, status = answer.body, answer.status

    async def same(_request: dict[str, Any]) -> web.Response:
        return web.Response(body=body, status=status, content_type="application/json")

    server = await serve(same)
    with pytest.raises(ServiceError, match="self-check"):
        await check_self(str(server.make_url("")).rstrip("/"), 1000)
    await server.close()


async def test_an_engine_that_is_not_there() -> None:
    with pytest.raises(ServiceError, match="self-check"):
        await check_self("http://127.0.0.1:9", 1000)
