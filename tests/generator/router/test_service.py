"""The router as a process: signals, graceful shutdown, port, exit."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.generator.router.app import serve_router
from services.generator.settings import GeneratorSettings
from tests.generator.router.conftest import FAST, QUESTION
from tests.generator.router.engines import FakeFactory, wait_for_gate

Serve = Callable[..., Awaitable[tuple[str, asyncio.Task[None]]]]


@pytest.fixture
async def serve(
    factory: FakeFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Serve]:
    """Serve in this process; gives the URL, once a replica is ready, and the task."""
    port_file = tmp_path / "port"
    monkeypatch.setenv("PLUMBLINE_PORT_FILE", str(port_file))
    tasks: list[asyncio.Task[None]] = []

    async def begin(**values: Any) -> tuple[str, asyncio.Task[None]]:
        settings = GeneratorSettings.model_validate({**FAST, **values})
        tasks.append(asyncio.create_task(serve_router(settings, factory, 1)))
        while not port_file.exists() or not factory.replicas:
            await asyncio.sleep(0.01)
        url = f"http://127.0.0.1:{port_file.read_text().strip()}"
        async with aiohttp.ClientSession() as session:
            while (await session.get(f"{url}/readyz")).status != 200:
                await asyncio.sleep(0.01)
        return url, tasks[-1]

    yield begin
    for task in tasks:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def ask(session: aiohttp.ClientSession, url: str) -> tuple[int, Any]:
    async with session.post(f"{url}/v1/chat/completions", json=QUESTION) as response:
        return response.status, json.loads(await response.read())


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains(serve: Serve, factory: FakeFactory, signum: int) -> None:
    factory.behave = wait_for_gate
    url, serving = await serve()
    async with aiohttp.ClientSession() as session:
        working = asyncio.create_task(ask(session, url))
        await factory.engine(0).has_received(1)
        os.kill(os.getpid(), signum)
        async with asyncio.timeout(10):
            with pytest.raises(ConnectionRefusedError):
                while True:
                    _, connection = await asyncio.open_connection(*url.split("//")[1].split(":"))
                    connection.close()
                    await asyncio.sleep(0.01)
        assert not working.done()
        factory.engine(0).gate.set()
        assert (await working)[0] == 200
    await serving
    assert factory.replicas[0, 0].stops == 1
