import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from redis import Redis

from services.aggregator.api import events
from services.aggregator.api.events import ProgressEvents
from services.aggregator.app import make_app
from services.aggregator.ingest import Ingester
from shared.ledger import Ledger
from shared.run_record import RunState
from shared.schemas import SampleId
from tests.aggregator.runs import begin, judge
from tests.shared.ledgers import problem

PATH = "/api/runs/run-1/events"


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    return begin(redis, [problem(f"p{i}") for i in range(3)])


@pytest.fixture
def ingester(redis: Redis, ledger: Ledger) -> Ingester:
    ingester = Ingester(redis)
    ingester.catch_up()
    return ingester


@pytest.fixture
async def client(redis: Redis, ingester: Ingester) -> AsyncIterator[TestClient]:
    quick = ProgressEvents(interval=0.05, heartbeat=0.15)
    async with TestClient(TestServer(make_app(redis, ingester, quick))) as client:
        yield client


async def part(answer: ClientResponse) -> tuple[str, dict]:
    """The next event's name and data; a heartbeat has the name ``:``."""
    text = (await answer.content.readuntil(b"\n\n")).decode()
    if text.startswith(":"):
        return ":", {}
    name, data = text.strip().split("\n")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def change(answer: ClientResponse) -> tuple[str, dict]:
    while (found := await part(answer))[0] == ":":
        pass
    return found


async def test_progress_until_the_run_is_published(
    client: TestClient, ingester: Ingester, ledger: Ledger
) -> None:
    async with asyncio.timeout(20), client.get(PATH) as answer:
        assert answer.content_type == "text/event-stream"
        name, data = await part(answer)
        assert (name, data["verdicts"], data["progress"]["planned"]) == ("progress", 0, 3)
        assert (await part(answer))[0] == ":"
        for number in range(3):
            judge(ledger, SampleId("d1", f"p{number}"))
        ingester.catch_up()
        name, data = await change(answer)
        assert (name, data["verdicts"]) == ("progress", 3)
        ledger.set_state(RunState.COMPLETE)
        ingester.catch_up()
        assert (await change(answer))[1]["state"] == "complete"
        assert (await part(answer))[0] == "end"
        assert await answer.content.read() == b""


async def test_a_run_that_is_deleted_is_gone(
    client: TestClient, ingester: Ingester, ledger: Ledger
) -> None:
    async with asyncio.timeout(20), client.get(PATH) as answer:
        await part(answer)
        ledger.delete()
        ingester.catch_up()
        assert (await change(answer))[0] == "gone"
        assert await answer.content.read() == b""


async def test_a_server_that_stops_ends_its_streams(redis: Redis, ingester: Ingester) -> None:
    client = TestClient(TestServer(make_app(redis, ingester)))
    await client.start_server()
    async with asyncio.timeout(5), client.get(PATH) as answer:
        await part(answer)
        closing = asyncio.create_task(client.server.close())
        while await answer.content.readany():
            pass
        await closing
    await client.close()


async def test_a_client_that_reads_nothing_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, redis: Redis, ingester: Ingester
) -> None:
    """Its stream holds one event at a time, and its place is free again."""
    monkeypatch.setattr(events, "event", lambda *_: b"x" * 50_000_000)
    limits = ProgressEvents(interval=0.05, write_timeout=0.2, max_streams=1)
    app = make_app(redis, ingester, limits)
    async with asyncio.timeout(30), TestClient(TestServer(app)) as client, client.get(PATH):
        while True:
            await asyncio.sleep(0.05)
            async with client.get(PATH) as second:
                if second.status == 200:
                    break
                assert second.status == 503
                assert list(await second.json()) == ["error"]
