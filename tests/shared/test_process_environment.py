"""Proxies of the environment: who uses them, and who does not."""

import os
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.runner.client import GeneratorClient
from shared.config import GenerationConfig
from shared.process_environment import PROXY_VARIABLES, adapt_process

HOSTS = web.AppKey("hosts", list[str])


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TestServer]:
    """A server of a model and the proxy of the environment; ``hosts`` has what it was asked for."""
    app = web.Application()
    hosts = app[HOSTS] = list[str]()

    async def answer(request: web.Request) -> web.Response:
        hosts.append(request.host)
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    app.router.add_get("/{path:.*}", answer)
    for name in PROXY_VARIABLES:
        monkeypatch.setenv(name, "")
    async with TestServer(app) as server:
        yield server


async def model_at(url: str) -> str:
    async with GeneratorClient([url], GenerationConfig()) as client:
        return await client.check()


async def test_a_model_server_outside_is_asked_through_the_proxy(
    server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("no_proxy", "mine.example.org")
    adapt_process()
    assert await model_at("http://models.example.com/v1") == "m"
    assert set(server.app[HOSTS]) == {"models.example.com"}
    assert os.environ["no_proxy"].startswith("mine.example.org,")  # as the user has it


async def test_loopback_and_the_stack_are_reached_without_it(
    server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nothing listens
    for host in ("127.0.0.1", "localhost"):
        assert await model_at(f"http://{host}:{server.port}/v1") == "m"
    # Names that only a stack resolves: the name fails, and not the proxy.
    for host in ("generator", "router.models.svc.cluster.local"):
        with pytest.raises(Exception, match=host) as caught:
            await model_at(f"http://{host}:1/v1")
        assert "127.0.0.1:9" not in str(caught.value)
