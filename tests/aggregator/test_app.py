import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from services.aggregator.app import make_app
from services.aggregator.fold import Runs
from shared.ledger import Ledger, connect
from tests.conftest import RedisServer
from tests.shared.ledgers import enter


@pytest.fixture
async def client(redis: Redis) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(make_app(redis, Runs(redis)))) as client:
        yield client


async def test_alive_and_ready(client: TestClient) -> None:
    async with client.get("/healthz") as answer:
        assert (answer.status, await answer.json()) == (200, {"status": "alive"})
    async with client.get("/readyz") as answer:
        assert (answer.status, await answer.json()) == (200, {"ready": True})


async def test_without_redis_it_is_alive_and_not_ready(own_redis_server: RedisServer) -> None:
    redis = Redis.from_url(own_redis_server.url, retry=Retry(NoBackoff(), 0))
    async with TestClient(TestServer(make_app(redis, Runs(redis)))) as client:
        own_redis_server.kill()
        async with client.get("/readyz") as answer:
            body = await answer.json()
            assert answer.status == 503
        assert body["ready"] is False
        assert body["reason"].startswith("Redis: ")
        async with client.get("/healthz") as answer:
            assert answer.status == 200
    redis.close()


async def test_a_probe_is_told_at_once_that_redis_is_away(own_redis_server: RedisServer) -> None:
    redis = connect(own_redis_server.url)
    async with TestClient(TestServer(make_app(redis, Runs(redis)))) as client:
        own_redis_server.kill()
        try:
            async with asyncio.timeout(3), client.get("/readyz") as answer:
                assert answer.status == 503
        finally:
            own_redis_server.start_again()
    redis.close()


async def test_without_redis_the_index_still_answers(own_redis_server: RedisServer) -> None:
    redis = connect(own_redis_server.url)
    runs = Runs(redis)
    enter(Ledger(redis, "run-1"))
    runs.catch_up()
    async with TestClient(TestServer(make_app(redis, runs))) as client:
        own_redis_server.kill()
        async with asyncio.timeout(10):
            async with client.get("/api/runs") as answer:
                assert list(await answer.json()) == ["run-1"]
            async with client.get("/metrics") as answer:
                assert "plumbline_runs_running 1.0" in await answer.text()
            async with client.get("/api/runs/run-1/samples/d1/p1/0") as answer:
                assert answer.status == 503
                assert list(await answer.json()) == ["error"]
    redis.close()
