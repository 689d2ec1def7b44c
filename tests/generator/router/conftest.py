import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from services.generator.router import supervisor
from services.generator.router.app import Router
from services.generator.settings import GeneratorSettings
from shared.service.access import authorization
from tests.generator.router.engines import FakeFactory
from tests.waiting import eventually

FAST = {"router_probe_interval": 60, "router_probe_timeout": 5, "router_probe_failures": 2}
PROBING = {"router_probe_interval": 0.1, "router_probe_timeout": 0.3}
"""Beside ``FAST``, for tests of health; on a busy machine such probes can fail by chance."""
QUESTION = {"messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 8}


class Service:
    """A router in this process, and a client of it."""

    def __init__(
        self,
        server: TestServer,
        client: aiohttp.ClientSession,
        failed: asyncio.Event,
        token: str | None,
    ) -> None:
        self.server, self.client, self.failed = server, client, failed
        self._token = token and token.strip()

    def post(
        self, path: str = "/v1/chat/completions", *, headers: Any = None, **fields: Any
    ) -> Any:
        url = self.server.make_url(path)
        return self.client.post(url, json={**QUESTION, **fields}, headers=headers)

    def get(self, path: str, **options: Any) -> Any:
        return self.client.get(self.server.make_url(path), **options)

    async def ask(self, **fields: Any) -> tuple[int, dict[str, Any], str]:
        """Status, body and replica of an answer."""
        async with self.post(**fields) as response:
            replica = response.headers.get("X-Plumbline-Replica", "")
            return response.status, await response.json(), replica

    async def state(self) -> dict[str, Any]:
        async with self.get("/readyz", headers=authorization(self._token)) as response:
            state: dict[str, Any] = await response.json()
            return state

    async def states(self) -> list[str]:
        return [replica["state"] for replica in (await self.state())["replicas"]]

    async def are(self, *states: str) -> None:
        """Wait until the replicas are in these states."""

        async def reached() -> bool:
            return await self.states() == list(states)

        await eventually(reached)

    async def queues(self, count: int) -> None:

        async def reached() -> bool:
            return bool((await self.state())["queued"] == count)

        await eventually(reached)

    async def metrics(self) -> str:
        async with self.get("/metrics") as response:
            text: str = await response.text()
            return text

    async def is_counted(self, line: str) -> None:
        """Wait until the metrics have this line."""

        async def reached() -> bool:
            return line in (await self.metrics()).splitlines()

        await eventually(reached)


Start = Callable[..., Awaitable[Service]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE", 0.01)


@pytest.fixture
def factory() -> FakeFactory:
    return FakeFactory()


@pytest.fixture
async def start(factory: FakeFactory) -> AsyncIterator[Start]:
    """Start a router with ``replicas`` replicas; returns when all are healthy, unless told."""
    opened: list[Service] = []

    async def start(
        replicas: int = 1, *, wait: bool = True, shutdown_timeout: float = 1, **settings: Any
    ) -> Service:
        values = GeneratorSettings.model_validate({**FAST, **settings})
        router = Router(values, factory, replicas)
        server = TestServer(router.application())
        await server.start_server(shutdown_timeout=shutdown_timeout)
        client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        opened.append(Service(server, client, router.pool.failed, settings.get("token")))
        if wait:
            await opened[-1].are(*["healthy"] * replicas)
        return opened[-1]

    yield start
    for service in opened:
        await service.client.close()
        await service.server.close()
    for engine in factory.engines:
        await engine.kill()
