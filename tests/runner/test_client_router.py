"""The client beside our own router, which refuses what its queue cannot take."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web

from services.generator.router.app import build_app
from services.generator.settings import GeneratorSettings
from tests.generator.router.engines import FakeEngine, FakeFactory, Received
from tests.generator.router.engines import answer as give
from tests.runner.generators import Servers, ask


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(stack, tmp_path)


async def slowly(
    engine: FakeEngine, request: web.Request, received: Received
) -> web.StreamResponse:
    await asyncio.sleep(0.02)
    return await give(engine, request, received)


async def test_no_sample_is_lost_to_a_queue_that_is_full(servers: Servers) -> None:
    factory = FakeFactory(slowly)
    settings = {"router_max_in_flight": 4, "router_queue_size": 8, "model": "m"}
    url = await servers.serve(build_app(GeneratorSettings.model_validate(settings), factory, 1))
    client = await servers.client(url, model="", concurrency=64, max_attempts=1)
    async with asyncio.timeout(30):
        await client.check()
        info = await client.info()
        generations = await asyncio.gather(*(ask(client) for _ in range(20)))
    assert info is not None and "backend" in info
    assert [generation.error for generation in generations] == [None] * 20
    assert {generation.replica for generation in generations} == {"replica-0.0"}
    requests = sum(generation.requests for generation in generations)
    assert 20 < requests < 40  # some were refused, and were let in later
    assert len(factory.engines[0].received) == 20
    for engine in factory.engines:
        await engine.kill()
