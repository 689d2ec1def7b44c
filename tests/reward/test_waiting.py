"""Waiting for answers: deadlines, clients that go, replicas, lost jobs, outages of Redis."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from redis import Redis
from redis.exceptions import RedisError

from services.reward import pending
from services.reward.models import ScoreItem, ScoreOptions
from shared.ledger import JudgeQueue
from shared.ledger.keys import RunKeys
from shared.schemas import Generation, Verdict
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.judge.workers import Worker
from tests.reward.servers import Served, served
from tests.shared.ledgers import verdict
from tests.waiting import eventually

QUEUE = "rq:queue:reward"
INLINE = {"inputs": ["1\n"], "outputs": ["1\n"]}
LINES = {"Accept": "application/x-ndjson"}


def item(completion: str) -> dict[str, object]:
    return {"ground_truth": INLINE, "completion": completion}


def queued(redis: Redis) -> int:
    """Completions of the jobs that wait."""
    return sum(len(job.batch.completions) for job in JudgeQueue("reward", redis).get_jobs())


async def accept(generation: Generation) -> Verdict:
    return verdict(generation)


@pytest.fixture(autouse=True)
def look_every(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the seconds between two looks at samples that wait."""
    monkeypatch.setattr(pending, "_LOOK_EVERY", getattr(request, "param", 0.2))


@pytest.fixture
async def service(redis: Redis, redis_server: RedisServer) -> AsyncIterator[Served]:
    async with served(redis, redis_server.url) as running:
        yield running


def keys_of(service: Served) -> RunKeys:
    return RunKeys(service.service.session.run)


def left(redis: Redis, service: Served) -> dict[str, int]:
    """What is in flight in Redis, by key."""
    keys = keys_of(service)
    flying = (keys.completions, keys.hashes, keys.verdicts, keys.jobs)
    return {key: size for key in flying if (size := redis.hlen(key))}


async def test_the_deadline_of_one_completion(service: Served, redis: Redis) -> None:
    status, body = await service.score(**item("a"), deadline=0.3)
    assert status == 504
    assert "deadline of 0.3 s" in body["error"]
    await eventually(lambda: not left(redis, service))


async def test_the_deadline_of_a_batch(
    service: Served, redis: Redis, redis_server: RedisServer
) -> None:
    async with Worker(redis_server.url, "w", judge=accept) as worker:
        asking = asyncio.create_task(service.score(items=[item("a"), item("b")], deadline=60))
        await eventually(lambda: queued(redis) == 2)
        await worker.judge_all()
        await asking
    status, body = await service.score(items=[item("a"), item("c")], deadline=0.3)
    first, second = body["results"]
    assert status == 200
    assert first["judged"] and first["cached"] and first["score"] == 1.0
    assert second["judged"] is False and second["score"] is None and second["accepted"] is None
    assert second["reason"] == "deadline_passed" and second["status"] == "api_error"
    assert "pass_ratio" in second and second["pass_ratio"] is None


async def test_completions_of_a_client_that_goes_leave_the_queue(
    service: Served, redis: Redis
) -> None:
    url = f"{service.url}/v1/score"
    staying = asyncio.create_task(service.score(items=[item("1"), item("2")], deadline=20))
    await eventually(lambda: queued(redis) == 2)
    body = {"items": [item(str(number)) for number in range(302)]}
    async with service.client.post(url, json=body, headers=LINES) as response:
        assert response.status == 200
        await eventually(lambda: queued(redis) == 302)
    await eventually(lambda: redis.hlen(keys_of(service).completions) == 2)
    staying.cancel()
    await eventually(lambda: not left(redis, service))


async def test_two_replicas_have_one_job(redis: Redis, redis_server: RedisServer) -> None:
    judged = []

    async def count(generation: Generation) -> Verdict:
        judged.append(generation.completion)
        return verdict(generation)

    url = redis_server.url
    async with served(redis, url) as running, served(redis, url) as other:
        assert running.service.session.run == other.service.session.run
        asked = [
            asyncio.create_task(each.score(items=[item("a"), item("b"), item("a")]))
            for each in (running, other)
        ]
        await eventually(lambda: queued(redis) == 2)
        async with Worker(url, "w", judge=count) as worker:
            await worker.judge_all()
        for status, body in await asyncio.gather(*asked):
            assert status == 200
            assert [r["score"] for r in body["results"]] == [1.0, 1.0, 1.0]
    assert sorted(judged) == ["a", "b"]


async def test_what_cannot_be_judged_is_neither_a_number_nor_remembered(
    service: Served, redis: Redis, redis_server: RedisServer
) -> None:
    async def fail(generation: Generation) -> Verdict:
        return verdict(generation, FinalStatus.API_ERROR, detail="sandbox: none answers")

    async with Worker(redis_server.url, "w", judge=fail) as worker:
        batch = asyncio.create_task(service.score(items=[item("a")]))
        single = asyncio.create_task(service.score(**item("b")))
        await eventually(lambda: queued(redis) == 2)
        await worker.judge_all()
    _, body = await batch
    [result] = body["results"]
    assert result["judged"] is False and result["score"] is None
    assert result["reason"] == "sandbox: none answers" and result["retry_after"] > 0
    status, body = await single
    assert status == 503 and "none answers" in body["error"]
    await eventually(lambda: not left(redis, service))
    assert not redis.keys("plumbline:reward:*:answer:*")

    async with Worker(redis_server.url, "w2", judge=accept) as worker:
        again = asyncio.create_task(service.score(**item("a")))
        await eventually(lambda: queued(redis) == 1)
        await worker.judge_all()
    assert (await again)[1]["score"] == 1.0


async def test_a_lost_job_is_delivered_again(
    service: Served, redis: Redis, redis_server: RedisServer
) -> None:
    asking = asyncio.create_task(service.score(**item("a"), deadline=40))
    await eventually(lambda: queued(redis) == 1)
    redis.lpop(QUEUE)  # as a worker that is killed in the next instant
    await eventually(lambda: queued(redis) == 1)
    async with Worker(redis_server.url, "w", judge=accept) as worker:
        await worker.judge_all()
    assert (await asking)[1]["score"] == 1.0


@pytest.mark.nightly
async def test_a_completion_that_fails_again_and_again_is_not_judged(
    redis: Redis, redis_server: RedisServer
) -> None:
    async def fail(_generation: Generation) -> Verdict:
        raise OSError

    async with (
        served(redis, redis_server.url) as service,
        Worker(redis_server.url, "w", judge=fail) as worker,
    ):
        asking = asyncio.create_task(service.score(**item("a"), deadline=40))
        serving = asyncio.create_task(worker.serve())
        status, body = await asking
        assert status == 503 and "judge_worker_lost" in body["error"]
        await eventually(lambda: not left(redis, service))
        assert not redis.keys("plumbline:reward:*:answer:*")
        worker.rq.stop()
        await serving


async def test_a_redis_that_lost_everything(
    service: Served, redis: Redis, redis_server: RedisServer
) -> None:
    asking = asyncio.create_task(service.score(items=[item("a"), item("b")], deadline=40))
    await eventually(lambda: queued(redis) == 2)
    redis.flushall()
    await eventually(lambda: queued(redis) == 2)
    async with Worker(redis_server.url, "w", judge=accept) as worker:
        await worker.judge_all()
    _, body = await asking
    assert [r["score"] for r in body["results"]] == [1.0, 1.0]


async def test_redis_restarts_while_requests_wait(own_redis_server: RedisServer) -> None:
    server = own_redis_server
    redis = Redis.from_url(server.url)
    async with served(redis, server.url) as service:
        first = asyncio.create_task(service.score(items=[item("a")], deadline=60))
        await eventually(lambda: queued(redis) == 1)
        server.kill()
        late = asyncio.create_task(service.score(**item("late"), deadline=0.5))
        second = asyncio.create_task(service.score(items=[item("b")], deadline=60))
        status, body = await late
        assert status == 504 and "score" not in body
        server.start_again()
        await eventually(lambda: answers(redis) and redis.hlen(keys_of(service).jobs) == 2, 40)
        async with Worker(server.url, "w", judge=accept) as worker:
            await worker.judge_all()
        for status, body in await asyncio.gather(first, second):
            assert status == 200
            assert body["results"][0]["score"] == 1.0


def answers(redis: Redis) -> bool:
    try:
        return bool(redis.ping())
    except RedisError:
        return False


async def test_a_verdict_that_nobody_waits_for_is_remembered(
    service: Served, redis: Redis, redis_server: RedisServer
) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def slow(generation: Generation) -> Verdict:
        started.set()
        await go.wait()
        return verdict(generation)

    async with Worker(redis_server.url, "w", judge=slow) as worker:
        asking = asyncio.create_task(service.score(**item("a"), deadline=60))
        await eventually(lambda: queued(redis) == 1)
        judging = asyncio.create_task(worker.judge_all())
        await started.wait()
        asking.cancel()
        await asyncio.sleep(0.3)
        assert left(redis, service)  # a judge has it
        go.set()
        await judging
    await eventually(lambda: not left(redis, service))
    _, result = await service.score(**item("a"))
    assert result["cached"] is True and result["score"] == 1.0


@pytest.mark.parametrize("look_every", [3600.0], indirect=True)
async def test_a_verdict_that_another_replica_settled_first(service: Served, redis: Redis) -> None:
    keys = keys_of(service)
    asking = asyncio.create_task(service.score(**item("a"), deadline=40))
    await eventually(lambda: redis.hlen(keys.hashes) == 1)
    [sample] = [key.decode() for key in redis.hkeys(keys.hashes)]
    with redis.pipeline(transaction=True) as pipe:
        pipe.delete(keys.hashes, keys.completions)
        pipe.set(keys.answer(sample), '{"status":"success","accepted":true,"pass_ratio":1}')
        pipe.xadd(keys.events, {"sample": sample})
        pipe.execute()
    status, body = await asking
    assert status == 200 and body["score"] == 1.0


async def test_a_stream_has_results_before_the_last_one(
    service: Served, redis: Redis, redis_server: RedisServer
) -> None:
    go = asyncio.Event()

    async def one_late(generation: Generation) -> Verdict:
        if generation.completion == "late":
            await go.wait()
        return verdict(generation)

    async with Worker(redis_server.url, "w", judge=one_late) as worker:
        url = f"{service.url}/v1/score"
        body = {"items": [item("late"), item("soon")]}
        async with service.client.post(url, json=body, headers=LINES) as response:
            await eventually(lambda: queued(redis) == 2)
            judging = asyncio.create_task(worker.judge_all())
            first = json.loads(await response.content.readline())
            assert first["index"] == 1 and first["score"] == 1.0
            go.set()
            second = json.loads(await response.content.readline())
            assert second["index"] == 0
            last = json.loads(await response.content.readline())
            assert last == {"done": True, "judged": 2, "unjudged": 0}
            await judging


async def test_an_answer_that_comes_while_a_client_reads_the_first(
    service: Served, redis_server: RedisServer
) -> None:
    go = asyncio.Event()

    async def in_turn(generation: Generation) -> Verdict:
        if generation.completion == "second":
            await go.wait()
        return verdict(generation)

    items = [ScoreItem.model_validate(item(text)) for text in ("first", "second")]
    groups = []
    async with Worker(redis_server.url, "w", judge=in_turn) as worker:
        serving = asyncio.create_task(worker.serve())
        async with service.service.scorer.stream(items, ScoreOptions(deadline=60)) as stream:
            async for group in stream:
                groups.append({index: result.score for index, result in group.items()})
                go.set()
                await eventually(lambda: not service.service.details()["pending"])
        worker.rq.stop()
        await serving
    assert groups == [{0: 1.0}, {1: 1.0}]
