"""The user ``reward`` of Redis may do what the service needs, together with ``judge``."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from services.judge.permits import SandboxPool
from shared.canaries import CanaryReport
from shared.ledger import CanaryLedger, Ledger, connect, connect_async, keys
from shared.ledger.packing import pack
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.rewards import RewardLedger, RewardProblem, RewardSample, SampleState
from shared.reference import problem_digest
from tests.redis_users import RedisWithUsers, redis_with_users
from tests.shared.ledgers import problem, verdict

RUN = "reward/0123456789abcdef"
PROBLEM = problem("p:1")
NAME = RewardProblem.of(PROBLEM.dataset, PROBLEM.problem_id, problem_digest(PROBLEM))
SAMPLES = [RewardSample.of(NAME, f"print({number})") for number in range(4)]


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisWithUsers]:
    with redis_with_users(tmp_path_factory.mktemp("redis")) as server:
        yield server


@asynccontextmanager
async def session(server: RedisWithUsers) -> AsyncIterator[RewardLedger]:
    """An open session whose samples wait in the queue."""
    redis = await connect_async(server.url_of("reward"))
    jobs = connect(server.url_of("reward"))
    rewards = RewardLedger(redis, PipelinedRedis(redis), jobs, RUN, remember=60)
    await rewards.open("{}")
    assert await rewards.submit(SAMPLES) == [SampleState.NO_PROBLEM] * len(SAMPLES)
    await rewards.bring({NAME.key: pack(PROBLEM.model_dump_json())})
    assert await rewards.submit(SAMPLES) == [SampleState.WAITING] * len(SAMPLES)
    yield rewards
    jobs.close()
    await redis.aclose()


def judge_one(server: RedisWithUsers) -> str:
    """Write the verdict on the first sample, as the user ``judge``; returns the sample's key."""
    with server.client("judge") as redis:
        ledger = Ledger(redis, RUN)
        [completion] = ledger.completions([SAMPLES[0].sample])
        assert ledger.record_verdict(verdict(completion))
    return completion.sample.key


async def test_everything_that_the_service_does(server: RedisWithUsers) -> None:
    async with session(server) as rewards:
        after = await rewards.last_event()
        judged = judge_one(server)
        after, names = await rewards.events(after, 5)
        assert names == [judged]
        assert await rewards.unsettled() == {judged}
        await rewards.settle(await rewards.verdicts([judged]))
        assert await rewards.look([judged]) != [SampleState.GONE]
        await rewards.abandon([one.key for one in SAMPLES if one.key != judged])
        assert await rewards.in_flight() == 0
        await rewards.tidy(now=lambda: 1e12)
    assert server.refusals() == []


async def test_everything_that_its_upkeep_does(server: RedisWithUsers) -> None:
    ledger = Ledger(connect(server.url_of("reward")), RUN)
    async with session(server):
        assert ledger.lock("me", 10)
        with server.client("default") as admin:
            admin.delete("rq:queue:reward")
        assert ledger.requeue_lost(ledger.requeue_lost(set())) == set()
        assert len(ledger.queue) == 1
        with server.client("judge") as judge:
            report = CanaryReport(sandbox="http://s", profile="x", at=1, seconds=1, sent=6)
            judge.hset(keys.RunKeys(RUN).canaries, "http://s first", report.model_dump_json())
        canaries = CanaryLedger.of(ledger)
        assert canaries.record().sandboxes
        canaries.forget(keep=0)
        ledger.unlock("me")
    assert server.refusals() == []


async def test_everything_that_programs_of_tools_need(server: RedisWithUsers) -> None:
    redis = await connect_async(server.url_of("reward"))
    pool = SandboxPool(PipelinedRedis(redis), ["http://s"], "w", max_concurrency=1)

    async def held() -> None:
        async with pool.permit() as permit:
            permit.paused = 0

    async with pool.permit():
        waiting = [asyncio.create_task(held()) for _ in range(2)]
        await asyncio.sleep(0.05)
        waiting.pop().cancel()
    await asyncio.gather(*waiting)
    await pool.close()
    await redis.aclose()
    assert server.refusals() == []
