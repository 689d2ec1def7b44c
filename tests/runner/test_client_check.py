"""Checks of the client before a run: models served, and ``/info``."""

import json

import pytest
from aiohttp import web

from services.runner.client import GeneratorClient
from shared.errors import ServiceError
from tests.runner.generators import Handler, Servers, ask

# Models


async def test_check_returns_the_model(servers: Servers) -> None:
    url = await servers.replay(model="m")
    assert await (await servers.client(url, model="m")).check() == "m"
    unnamed = await servers.client(url, url, model="")
    assert await unnamed.check() == "m"
    assert (await ask(unnamed)).error is None


async def test_check_with_a_wrong_key(servers: Servers) -> None:
    url = await servers.replay(api_key="right")
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
        ("<html>", 200),
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
