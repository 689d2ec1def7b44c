"""What the client finds out before a run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web

from services.runner.client import GeneratorClient
from shared.errors import ServiceError
from tests.runner.generators import Servers, ask, refused_url


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(stack, tmp_path)


async def test_check_returns_the_model(servers: Servers) -> None:
    url = await servers.replay(model="m")
    assert await (await servers.client(url, model="m")).check() == "m"
    unnamed = await servers.client(url, url, model="")
    assert await unnamed.check() == "m"
    assert (await ask(unnamed)).error is None


async def test_check_of_a_server_that_is_down(servers: Servers) -> None:
    client = await servers.client(await servers.replay(), refused_url())
    await complains(client, "cannot reach the generator")


@pytest.mark.parametrize("url", ["localhost", "ftp://localhost", "http://"])
async def test_check_of_an_address_that_is_none(servers: Servers, url: str) -> None:
    await complains(await servers.client(url), "cannot reach the generator")


async def test_check_with_a_wrong_key(servers: Servers) -> None:
    url = await servers.replay(api_key="right")
    assert await (await servers.client(url, api_key="right")).check() == "replay"
    await complains(await servers.client(url, api_key="wrong"), "API key")
    await complains(await servers.client(url), "API key")


async def test_check_for_an_unknown_model(servers: Servers) -> None:
    client = await servers.client(await servers.replay(model="served"), model="other")
    await complains(client, "does not serve the model 'other'; it serves: served")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, "404: Not Found", "HTTP 404"),
        (500, '{"error": "broken"}', "HTTP 500: broken"),
        (200, "<html>hello</html>", "does not speak the OpenAI API"),
        (200, "{}", "does not speak the OpenAI API"),
        (200, "[]", "does not speak the OpenAI API"),
        (200, '{"data": [{"id": "a"}, {"id": "b"}]}', "generator serves: a, b"),
        (200, '{"data": []}', "generator serves: none"),
    ],
)
async def test_check_of_other_servers(servers: Servers, status: int, body: str, said: str) -> None:
    async def models(_request: web.Request) -> web.Response:
        return web.Response(text=body, status=status)

    client = await servers.client(await servers.stand_in(models=models), model="")
    await complains(client, said)


async def test_check_of_a_server_that_hangs(servers: Servers) -> None:
    async def models(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError("never set")

    url = await servers.stand_in(models=models)
    await complains(await servers.client(url, request_timeout=0.1), "no answer in 0.1 s")


async def complains(client: GeneratorClient, said: str) -> None:
    with pytest.raises(ServiceError) as raised:
        await client.check()
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
