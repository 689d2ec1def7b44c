"""What a generator says of itself, and that one which says nothing does no harm."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web

from services.runner import server_info as module
from tests.runner.generators import Handler, Servers, refused_url

INFO = {"backend": "verl", "model": "m", "chat_template_sha256": "aa", "engine": {"dtype": "half"}}


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(stack, tmp_path)


def saying(text: str | bytes, status: int = 200) -> Handler:
    async def info(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer key"
        body = text.encode() if isinstance(text, str) else text
        return web.Response(body=body, status=status)

    return info


async def test_a_server_that_tells(servers: Servers) -> None:
    url = await servers.stand_in(info=saying(json.dumps(INFO)))
    for given in (url, f"{url}/v1", f"{url}/v1/"):
        assert await (await servers.client(given, api_key="key")).info() == INFO


async def test_several_servers_by_url(servers: Servers) -> None:
    telling = await servers.stand_in(info=saying(json.dumps(INFO)))
    silent = await servers.stand_in()
    client = await servers.client(telling, silent, api_key="key")
    assert await client.info() == {f"{telling}/v1": INFO, f"{silent}/v1": None}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 404),
        ("{}", 500),
        ("", 200),
        ("<html>", 200),
        ("[1]", 200),
        ('"text"', 200),
        ("null", 200),
        (b"\xff", 200),
        ('{"a": NaN}', 200),
        ('{"a":' * 100_000, 200),
        (json.dumps({"a": "x" * 2**20}), 200),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_what_is_no_object_of_json_is_nothing(
    servers: Servers, text: str | bytes, status: int
) -> None:
    url = await servers.stand_in(info=saying(text, status))
    assert await (await servers.client(url, api_key="key")).info() is None


async def test_up_to_a_mebibyte_is_read(servers: Servers) -> None:
    info = {"a": "x" * (2**20 - 20)}
    url = await servers.stand_in(info=saying(json.dumps(info)))
    assert await (await servers.client(url, api_key="key")).info() == info


async def test_a_server_that_is_away(servers: Servers) -> None:
    assert await (await servers.client(refused_url())).info() is None


async def test_a_server_that_hangs(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError("never set")

    monkeypatch.setattr(module, "_TIMEOUT", 0.1)
    client = await servers.client(await servers.stand_in(info=hang))
    async with asyncio.timeout(5):
        assert await client.info() is None


async def test_lone_surrogates_are_replaced(servers: Servers) -> None:
    url = await servers.stand_in(info=saying('{"gpu": "\\ud800"}'))
    assert await (await servers.client(url, api_key="key")).info() == {"gpu": "\ufffd"}
