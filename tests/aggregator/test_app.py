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
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.shared.ledgers import generation, verdict

STATUSES = {
    SampleId("d1", "p1"): FinalStatus.SUCCESS,
    SampleId("d1", "p2"): FinalStatus.SUCCESS,
    SampleId("d1", "p3"): FinalStatus.WRONG_ANSWER,
    SampleId("d1", "p4"): FinalStatus.API_ERROR,
    SampleId("d2", "p1"): FinalStatus.API_ERROR,
}


@pytest.fixture
async def client(redis: Redis) -> AsyncIterator[TestClient]:
    ledger = Ledger(redis, "run-1")
    ledger.open({"state": "running"}, [])
    for sample, status in STATUSES.items():
        ledger.record(generation(sample))
        ledger.record_verdict(verdict(generation(sample), status))
    runs = Runs(redis)
    runs.catch_up()
    async with TestClient(TestServer(make_app(redis, runs))) as client:
        yield client


async def metrics(client: TestClient) -> dict[str, float]:
    async with client.get("/metrics") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/plain"
        lines = (await answer.text()).splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


async def test_verdicts_by_data_set_and_status(client: TestClient) -> None:
    found = await metrics(client)
    verdicts = {n: v for n, v in found.items() if n.startswith("plumbline_verdicts_total")}
    assert verdicts == {
        'plumbline_verdicts_total{dataset="d1",status="success"}': 2,
        'plumbline_verdicts_total{dataset="d1",status="wrong_answer"}': 1,
        'plumbline_verdicts_total{dataset="d1",status="api_error"}': 1,
        'plumbline_verdicts_total{dataset="d2",status="api_error"}': 1,
    }


async def test_the_accepted_share_is_of_what_was_judged(client: TestClient) -> None:
    found = await metrics(client)
    accepted = {n: v for n, v in found.items() if n.startswith("plumbline_accepted_ratio")}
    assert accepted == {'plumbline_accepted_ratio{dataset="d1"}': pytest.approx(2 / 3)}


async def test_the_depth_of_the_queue(client: TestClient, redis: Redis) -> None:
    assert (await metrics(client))["plumbline_judge_queue_jobs"] == 5
    Ledger(redis, "run-1").queue.rq.empty()
    assert (await metrics(client))["plumbline_judge_queue_jobs"] == 0


async def test_no_run_or_problem_is_a_label(client: TestClient) -> None:
    names = "\n".join(await metrics(client))
    assert "run-1" not in names
    assert "p1" not in names


async def test_the_runs(client: TestClient) -> None:
    async with client.get("/api/runs") as answer:
        assert await answer.json() == {
            "run-1": {
                "verdicts": 5,
                "datasets": {
                    "d1": {"success": 2, "wrong_answer": 1, "api_error": 1},
                    "d2": {"api_error": 1},
                },
            }
        }


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
