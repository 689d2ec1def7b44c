from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.runner.preflight import check_sandboxes
from shared.errors import ServiceError
from tests.runner.generators import refused_url

Start = Callable[..., Awaitable[str]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    servers: list[TestServer] = []

    async def start(text: str, status: int = 200) -> str:
        async def ping(_request: web.Request) -> web.Response:
            return web.Response(text=text, status=status)

        app = web.Application()
        app.router.add_get("/v1/ping", ping)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        return str(server.make_url("")).rstrip("/")

    yield start
    for server in servers:
        await server.close()


async def test_sandboxes_that_answer(start: Start) -> None:
    one, two = await start('"pong"'), await start("pong")
    await check_sandboxes([one, f"{two}/run_code", f"{two}/"])


@pytest.mark.parametrize(("text", "status"), [("pong", 500), ("<html>", 200), ("", 404)])
async def test_a_server_that_is_not_a_sandbox(start: Start, text: str, status: int) -> None:
    good, bad = await start("pong"), await start(text, status)
    with pytest.raises(ServiceError, match="is not a SandboxFusion server") as caught:
        await check_sandboxes([good, bad])
    assert bad in str(caught.value)
    assert str(status) in str(caught.value)


async def test_nothing_answers() -> None:
    url = refused_url()
    with pytest.raises(ServiceError, match="not reachable") as caught:
        await check_sandboxes([url])
    assert url in str(caught.value)


@pytest.mark.parametrize("url", ["nonsense", "http://", "http://127.0.0.1:port", ""])
async def test_no_url(url: str) -> None:
    with pytest.raises(ServiceError, match="not reachable"):
        await check_sandboxes([url])
