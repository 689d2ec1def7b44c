"""Fault injection of the replay server, from a client's view."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from services.generator.backends.replay.faults import Fault, parse_faults
from shared.errors import ConfigError
from tests.generator.conftest import Replay, chat


@pytest.mark.parametrize("status", [400, 401, 404, 408, 500, 503])
async def test_status_then_the_answer(replay: Replay, status: int) -> None:
    client = await replay(replay_failures=str(status))
    failed = await chat(client)
    assert failed.status == status
    assert "injected" in (await failed.json())["error"]["message"]
    assert (await chat(client)).status == 200


async def test_retry_after(replay: Replay) -> None:
    client = await replay(replay_failures="429,429:0.1")
    headers = [(await chat(client)).headers["Retry-After"] for _ in range(2)]
    assert headers == ["1", "0.1"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failure", ["reset", "truncated"])
async def test_broken_connection(replay: Replay, failure: str, stream: bool) -> None:
    client = await replay(replay_failures=failure)
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await (await chat(client, "d1/long/0", stream=stream)).read()
    assert (await chat(client)).status == 200


async def test_hang_ends_with_the_server_at_the_latest(replay: Replay) -> None:
    client = await replay(replay_failures="hang")
    hanging = asyncio.create_task(chat(client))
    while "in_flight 1.0" not in await (await client.get("/metrics")).text():
        assert not hanging.done()
    async with asyncio.timeout(5):
        await client.server.close()
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await hanging


async def test_abort_looks_like_an_answer(replay: Replay) -> None:
    answer = await (await chat(await replay(replay_failures="abort"))).json()
    assert answer["choices"][0]["finish_reason"] == "abort"
    assert answer["choices"][0]["message"]["content"] == "first "


async def test_useless_bodies(replay: Replay) -> None:
    client = await replay(replay_failures="empty,garbage")
    empty, garbage = await chat(client), await chat(client)
    assert (empty.status, garbage.status) == (200, 200)
    assert (await empty.json())["choices"] == []
    assert "<html>" in await garbage.text()


async def test_failures_come_before_the_api_key(replay: Replay) -> None:
    client = await replay(replay_failures="503", api_key="k")
    assert [(await chat(client)).status for _ in range(2)] == [503, 401]


async def test_too_long_and_ok(replay: Replay) -> None:
    client = await replay(replay_failures="ok,too_long")
    assert (await chat(client)).status == 200
    refused = await chat(client)
    assert refused.status == 400
    assert "maximum context length" in (await refused.json())["error"]["message"]


async def test_a_response_of_a_file_for_all_further_requests(
    replay: Replay, tmp_path: Path
) -> None:
    described = {"status": 418, "headers": {"Retry-After": "3"}, "body": {"error": "a teapot"}}
    (tmp_path / "teapot.json").write_text(json.dumps(described))
    client = await replay(replay_failures=f"ok,@{tmp_path / 'teapot.json'}*")
    assert (await chat(client)).status == 200
    for _ in range(3):
        response = await chat(client)
        assert (response.status, response.headers["Retry-After"]) == (418, "3")
        assert json.loads(await response.text()) == {"error": "a teapot"}


def test_parsing() -> None:
    assert parse_faults(["500", "429:0.5", "reset", "503*"]) == [
        Fault("500", 500),
        Fault("429", 429, 0.5),
        Fault("reset"),
        Fault("503", 503, lasting=True),
    ]


@pytest.mark.parametrize("text", ["boom", "200", "600", "429:soon", "429:-1", "reset:1", "nan"])
def test_unknown_failure(text: str) -> None:
    with pytest.raises(ConfigError, match="unknown failure"):
        parse_faults([text])
