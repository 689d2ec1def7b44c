import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from services.aggregator.app import STATIC, add_page, make_app
from services.aggregator.ingest import Ingester
from shared.ledger import Ledger, connect
from shared.schemas import SampleId
from tests.aggregator.runs import begin, judge
from tests.conftest import RedisServer
from tests.shared.ledgers import enter, problem

FILES = sorted(path.name for path in STATIC.iterdir())


@pytest.fixture
async def client(redis: Redis) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(make_app(redis, Ingester(redis)))) as client:
        yield client


async def test_alive_and_ready(client: TestClient) -> None:
    async with client.get("/healthz") as answer:
        assert (answer.status, await answer.json()) == (200, {"status": "alive"})
    async with client.get("/readyz") as answer:
        assert (answer.status, await answer.json()) == (200, {"ready": True})


async def test_without_redis_it_is_alive_and_not_ready(own_redis_server: RedisServer) -> None:
    redis = Redis.from_url(own_redis_server.url, retry=Retry(NoBackoff(), 0))
    async with TestClient(TestServer(make_app(redis, Ingester(redis)))) as client:
        own_redis_server.kill()
        async with client.get("/readyz") as answer:
            body = await answer.json()
            assert answer.status == 503
        assert body["ready"] is False
        assert body["reason"].startswith("Redis: ")
        async with client.get("/healthz") as answer:
            assert answer.status == 200
    redis.close()


async def test_a_run_that_was_interrupted_is_not_at_work(redis: Redis) -> None:
    """Nobody waits for it, so the alert about a run without progress is not about it."""
    ingester = Ingester(redis)
    ledger = Ledger(redis, "run-1")
    enter(ledger)
    ingester.catch_up()
    async with TestClient(TestServer(make_app(redis, ingester))) as client:
        for locked in (True, False):
            if locked:
                assert ledger.lock("runner", 15.0)
            else:
                ledger.unlock("runner")
            ingester.catch_up()
            async with client.get("/metrics") as answer:
                assert f"plumbline_runs_running {float(locked)}" in await answer.text()


async def test_without_redis_the_index_still_answers(own_redis_server: RedisServer) -> None:
    redis = connect(own_redis_server.url)
    ingester = Ingester(redis)
    ledger = begin(redis, [problem("p1")])
    assert ledger.lock("runner", 600.0)
    judge(ledger, SampleId("d1", "p1"))
    ingester.catch_up()
    async with TestClient(TestServer(make_app(redis, ingester))) as client:
        own_redis_server.kill()
        async with client.get("/api/runs") as answer:
            assert list(await answer.json()) == ["run-1"]
        async with client.get("/metrics") as answer:
            assert "plumbline_runs_running 1.0" in await answer.text()
        async with client.get("/api/runs/run-1/samples/d1/p1/0") as answer:
            assert (await answer.json())["verdict"]["accepted"]
        async with client.get("/api/runs/run-1/samples/d1/p1/0/cases") as answer:
            assert answer.status == 503
            assert list(await answer.json()) == ["error"]
    redis.close()


# The page's files are served whole, with a policy under which only their scripts run.


@pytest.fixture
async def page() -> AsyncIterator[TestClient]:
    app = web.Application()
    add_page(app)
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_files_are_served_with_the_policy(page: TestClient) -> None:
    for name in FILES:
        async with page.get("/" if name == "index.html" else f"/static/{name}") as answer:
            assert answer.status == 200, name
            assert await answer.read() == (STATIC / name).read_bytes(), name
            policy = answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff", name
        directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
        assert directives["default-src"] == "'none'", name
        assert directives["script-src"] == directives["style-src"] == "'self'", name
        assert "unsafe" not in policy, name


async def test_nothing_else_is_served(page: TestClient) -> None:
    for path in ("/static/", "/static/..%2f__init__.py", "/static/none.js"):
        async with page.get(path) as answer:
            assert answer.status == 404


def test_files_name_only_files_that_exist() -> None:
    named = set()
    for name in FILES:
        text = (STATIC / name).read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
        named |= set(re.findall(r'"(?:static|\.)/([\w.]+)"', text))
    assert named == set(FILES) - {"index.html"}


def test_text_of_data_is_never_parsed_as_markup() -> None:
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc"
    )
    scripts = [name for name in FILES if name.endswith(".js")]
    assert [name for name in scripts if re.search(forbidden, (STATIC / name).read_text())] == []
