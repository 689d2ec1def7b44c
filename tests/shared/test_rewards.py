"""The ledger of a reward session in a real Redis."""

from collections.abc import AsyncIterator

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from shared.ledger import Ledger
from shared.ledger.keys import RunKeys
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.queue import BATCH, Batch, JudgeQueue
from shared.ledger.rewards import (
    RewardAnswer,
    RewardLedger,
    RewardSample,
    SampleState,
    SessionClosedError,
)
from shared.schemas import Generation
from shared.statuses import FinalStatus
from shared.text import pack, unpack
from tests.conftest import RedisServer
from tests.shared.ledgers import problem, verdict

RUN = "reward/0123456789abcdef"
KEYS = RunKeys(RUN)
SAMPLE = RewardSample.of("d1", "p/1", "f" * 16, "print(1)")
GOOD = RewardAnswer(status=FinalStatus.SUCCESS, accepted=True, pass_ratio=1.0)


@pytest.fixture
async def ledger(redis: Redis, redis_server: RedisServer) -> AsyncIterator[RewardLedger]:
    client = AsyncRedis.from_url(redis_server.url)
    ledger = RewardLedger(client, PipelinedRedis(client), redis, RUN, remember=60)
    await ledger.open("{}")
    await ledger.bring({SAMPLE.problem: pack(problem().model_dump_json())})
    yield ledger
    await client.aclose()


def judge(redis: Redis, status: FinalStatus = FinalStatus.SUCCESS) -> None:
    """Write the verdict on the sample, as a judge does."""
    stored = redis.hget(KEYS.completions, SAMPLE.key)
    assert isinstance(stored, bytes)
    found = verdict(Generation.model_validate_json(unpack(stored)))
    found = found.model_copy(update={"final_status": status})
    redis.hset(KEYS.verdicts, SAMPLE.key, found.model_dump_json())


async def test_samples_are_queued_in_batches(ledger: RewardLedger, redis: Redis) -> None:
    samples = [RewardSample.of("d1", "p/1", "f" * 16, f"print({n})") for n in range(BATCH + 1)]
    assert await ledger.submit(samples) == [SampleState.WAITING] * len(samples)
    named = tuple((s.generation.sample, s.generation.completion_sha256) for s in samples)
    queued = [job.batch for job in JudgeQueue("reward", redis).get_jobs()]
    assert queued == [Batch(RUN, named[:BATCH]), Batch(RUN, named[BATCH:])]


async def test_a_sample_whose_job_was_not_queued_is_found(
    ledger: RewardLedger, redis: Redis
) -> None:
    """The service may end between the two."""
    await ledger.submit([SAMPLE])
    redis.delete("rq:queue:reward", KEYS.jobs, *redis.keys("rq:job:*"))
    found = Ledger(redis, RUN)
    assert found.requeue_lost(found.requeue_lost(set())) == set()
    assert len(JudgeQueue("reward", redis)) == 1


async def test_submitting_twice_queues_once(ledger: RewardLedger, redis: Redis) -> None:
    for _ in range(3):
        assert await ledger.submit([SAMPLE]) == [SampleState.WAITING]
    assert redis.llen("rq:queue:reward") == 1


async def test_a_sample_without_its_problem_is_not_queued(
    ledger: RewardLedger, redis: Redis
) -> None:
    other = RewardSample.of("d1", "p2", "f" * 16, "print(1)")
    assert await ledger.submit([other, SAMPLE]) == [SampleState.NO_PROBLEM, SampleState.WAITING]
    assert redis.llen("rq:queue:reward") == 1


async def test_a_session_must_be_open(ledger: RewardLedger, redis: Redis) -> None:
    redis.delete(KEYS.meta)
    with pytest.raises(SessionClosedError):
        await ledger.submit([SAMPLE])
    assert not redis.exists("rq:queue:reward")


async def test_settling_leaves_the_answer_alone(ledger: RewardLedger, redis: Redis) -> None:
    await ledger.submit([SAMPLE])
    await ledger.settle({SAMPLE.key: GOOD})
    assert redis.hexists(KEYS.completions, SAMPLE.key), "settled without a verdict"
    judge(redis)
    assert await ledger.look([SAMPLE.key]) == [SampleState.JUDGED]
    verdicts = await ledger.verdicts([SAMPLE.key])
    for _ in range(2):
        await ledger.settle(verdicts)
    for key in (KEYS.completions, KEYS.hashes, KEYS.verdicts):
        assert not redis.exists(key), key
    [remembered] = await ledger.submit([SAMPLE])
    assert isinstance(remembered, RewardAnswer) and remembered.status is FinalStatus.SUCCESS
    assert 0 < redis.ttl(KEYS.answer(SAMPLE.key)) <= 60


async def test_an_api_error_is_forgotten(ledger: RewardLedger, redis: Redis) -> None:
    await ledger.submit([SAMPLE])
    judge(redis, FinalStatus.API_ERROR)
    await ledger.settle(await ledger.verdicts([SAMPLE.key]))
    assert await ledger.look([SAMPLE.key]) == [SampleState.GONE]
    assert not redis.exists(KEYS.answer(SAMPLE.key))


async def test_abandoning(ledger: RewardLedger, redis: Redis) -> None:
    await ledger.submit([SAMPLE])
    await ledger.abandon([SAMPLE.key])
    assert await ledger.look([SAMPLE.key]) == [SampleState.GONE]
    assert not redis.exists(KEYS.jobs, KEYS.completions)
    redis.delete("rq:queue:reward")
    await ledger.submit([SAMPLE])
    redis.lpop("rq:queue:reward")  # a judge has it
    await ledger.abandon([SAMPLE.key])
    assert await ledger.look([SAMPLE.key]) == [SampleState.WAITING]


async def test_tidying(ledger: RewardLedger, redis: Redis) -> None:
    later = redis.time()[0] + 10_000
    redis.xadd(KEYS.events, {"sample": SAMPLE.key})
    await ledger.bring({"other": b""})
    redis.zadd(KEYS.used, {SAMPLE.problem: 0, "other": 0})
    await ledger.submit([SAMPLE])
    await ledger.tidy()
    assert redis.hkeys(KEYS.problems) == [SAMPLE.problem.encode()], "it was used just now"
    await ledger.tidy(now=lambda: later)
    assert not redis.exists(KEYS.problems)
    assert redis.ttl(KEYS.meta) > 0
