"""Outages: what a run waits for, what it reports, and when it ends."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest
from aiohttp import web
from redis import Redis
from rq.worker import BaseWorker
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from services.runner import client as clients
from services.runner import outages
from services.runner.client import GeneratorClient
from services.runner.outages import JudgesCheck, Trouble, watch_outages
from shared.errors import ServiceError
from shared.ledger import keys
from shared.ledger.queue import TROUBLE
from shared.schemas import Generation
from shared.service.processes import free_port, with_watch
from tests.runner.generators import FIELDS, SAMPLE, Notes, Servers, answer
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "_FIRST_REPORT", 0.05)
    monkeypatch.setattr(outages, "_REPORTS", 0.1)


async def generated(
    client: GeneratorClient, problems: Iterable[str], notes: Notes | None = None
) -> dict[str, Generation]:
    """Generate one sample of each problem, whose prompt is its name, as a run does."""
    done: dict[str, Generation] = {}
    names = list(problems)

    async def generate(name: str) -> None:
        sample = replace(SAMPLE, problem_id=name)
        messages = [{"role": "user", "content": name}]
        done[name] = await client.generate(sample, "run", messages, FIELDS)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(generate(name))

    check = lambda: client.trouble(len(names) - len(done))  # noqa: E731
    await with_watch(work, partial(watch_outages, notes or Notes(), [check], tick=0.01))
    return done


async def prompt_of(request: web.Request) -> str:
    return str((await request.json())["messages"][0]["content"])


@pytest.mark.parametrize("concurrency", [1, 8])
async def test_a_prompt_that_breaks_the_server_costs_its_own_sample(
    servers: Servers, concurrency: int
) -> None:
    """Whether others are on their way with it, or come after it."""

    async def chat(request: web.Request) -> web.Response:
        poison = "poison" in await prompt_of(request)
        return web.Response(status=500) if poison else answer()

    client = await servers.client(await servers.stand_in(chat), concurrency=concurrency)
    completions = await generated(client, ["a", "poison 1", "b", "poison 2", *"cdefgh"])
    errors = {name: one.error for name, one in completions.items() if one.error}
    assert errors == dict.fromkeys(["poison 1", "poison 2"], "http_500: no message")


async def test_a_gateway_whose_backend_is_away_costs_no_sample(servers: Servers) -> None:
    requests, away = 0, True

    async def chat(_request: web.Request) -> web.Response:
        nonlocal requests
        requests += 1
        return web.Response(status=502, text="no backend") if away and requests > 3 else answer()

    url = await servers.stand_in(chat)
    client = await servers.client(url, concurrency=4, max_attempts=1)
    notes = Notes()
    work = asyncio.create_task(generated(client, map(str, range(12)), notes))
    await eventually(lambda: len(notes.texts) >= 2)  # it says so again and again
    assert notes.waiting
    assert f"the generator at {url}/v1 answers HTTP 502 since " in notes.texts[0]
    assert "9 samples wait" in notes.texts[0] and "trying until " in notes.texts[0]
    during = requests
    away = False
    assert [one.error for one in (await work).values()] == [None] * 12
    assert during < 60  # a few probes, not every sample in turn


async def test_a_server_that_answers_nothing_is_asked_for_a_sign_of_life(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generation may take an hour, so that only the list of models tells the difference."""
    monkeypatch.setattr(clients, "_SILENCE", 0.05)
    monkeypatch.setattr(clients, "_SIGN_OF_LIFE", 0.1)
    stopped, finish = asyncio.Event(), asyncio.Event()
    looks = 0

    async def chat(_request: web.Request) -> web.Response:
        await finish.wait()
        return answer()

    async def models(_request: web.Request) -> web.Response:
        nonlocal looks
        looks += 1
        if stopped.is_set():
            await finish.wait()
        return web.json_response({"data": [{"id": "replay"}]})

    url = await servers.stand_in(chat, models=models)
    notes = Notes()
    work = asyncio.create_task(generated(await servers.client(url), ["a"], notes))
    await eventually(lambda: looks >= 3)
    assert notes.texts == []
    stopped.set()
    await eventually(lambda: bool(notes.texts))
    assert "does not answer since " in notes.texts[0]
    finish.set()
    assert (await work)["a"].error is None


async def test_requests_that_are_worked_on_are_no_outage(servers: Servers) -> None:
    """A full server rejects the others for as long as an answer takes."""
    finish = asyncio.Event()
    rejected = 0

    async def chat(request: web.Request) -> web.Response:
        nonlocal rejected
        if await prompt_of(request) == "long":
            await finish.wait()
        elif not finish.is_set():
            rejected += 1
            return web.Response(status=429, headers={"Retry-After": "0.01"})
        return answer()

    client = await servers.client(await servers.stand_in(chat), retry_budget=0.2)
    work = asyncio.create_task(generated(client, ["long", "other"]))
    began = time.monotonic()
    await eventually(lambda: rejected >= 2 and time.monotonic() - began > 0.5)
    assert not work.done()
    finish.set()
    assert [one.error for one in (await work).values()] == [None, None]


async def test_a_server_that_rejects_everything_ends_a_large_run(servers: Servers) -> None:
    async def chat(_request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "unknown field seed"}}, status=400)

    client = await servers.client(await servers.stand_in(chat), retry_budget=0.1)
    with pytest.raises(ServiceError, match=r"gives no usable answer.*unknown field seed"):
        await generated(client, map(str, range(2000)))


async def test_the_end_of_an_outage_is_reported() -> None:
    notes, away = Notes(), True

    async def check() -> Trouble | None:
        return Trouble("no judge is there", 40, began, began + 60) if away else None

    began = time.time()
    watching = asyncio.create_task(watch_outages(notes, [check], tick=0.01))
    await eventually(lambda: len(notes.texts) >= 2)
    assert notes.texts[0].startswith("no judge is there since ") and notes.waiting
    away = False
    await eventually(lambda: not notes.waiting)
    watching.cancel()
    assert notes.texts[-1] == "over after 0 s: no judge is there"


# Judges, sandboxes and Redis


async def test_judges_and_their_sandboxes(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    check = JudgesCheck(redis, lambda: 40, lambda: 40)
    none = await check()
    assert none is not None and none.what == "no judge is there"
    later = await check()
    assert later is not None and later.since == none.since
    assert "40 samples wait, trying until " in str(later)
    workers = [f"{BaseWorker.redis_worker_namespace_prefix}{name}" for name in "ab"]
    redis.sadd(WORKERS_BY_QUEUE_KEY % keys.JUDGE_QUEUE, *workers, "rq:worker:gone")
    for worker in workers:
        redis.hset(worker, mapping={"last_heartbeat": "now", TROUBLE: ""})
    assert await check() is None
    redis.hset(workers[0], TROUBLE, "http://s: refused")
    assert await check() is None  # the other judge's are well
    redis.hset(workers[1], TROUBLE, "http://s: refused")
    away = await check()
    assert away is not None and "(http://s: refused)" in str(away)
    assert away.what == "no sandbox answers"
    monkeypatch.setattr(outages, "PATIENCE", 0.0)
    redis.delete(*workers)
    with pytest.raises(ServiceError, match=r"no judge is there since .*40 samples wait"):
        await watch_outages(Notes(), [check], tick=0.01)


async def test_a_redis_that_is_away_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "PATIENCE", 0.3)
    notes = Notes()
    ended = pytest.raises(ServiceError, match=r"Redis does not answer .*; 40 samples wait; start")
    with closing(JudgesCheck(Redis(port=free_port()), lambda: 0, lambda: 40)) as check, ended:
        await watch_outages(notes, [check], tick=0.01)
    assert "trying until " in notes.texts[0]
