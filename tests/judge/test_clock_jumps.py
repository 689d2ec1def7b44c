"""The wall clock of Redis is set back: by it Redis counts locks, leases, pauses and the queue."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from services.judge.permits import CallOutcome, PoolSettings, SandboxPool
from services.judge.permits.script import PermitScript
from shared.ledger import Ledger, connect_async
from shared.ledger.jobs import HeldJobs, WorkerJobs
from shared.ledger.pipelined import PipelinedRedis
from tests.chaos.clock import Clocks
from tests.conftest import RedisServer
from tests.judge.pools import until
from tests.shared.ledgers import RUN, generation

ONE = "http://sandbox-1:8080"
HOUR = 3600.0
SETTINGS = PoolSettings(1, initial=1, eject_after=1, eject_base=0.1)


@pytest.fixture
def url(clocks: Clocks, tmp_path: Path) -> Iterator[str]:
    server = RedisServer(tmp_path / "redis", os.environ | clocks.environment("redis"))
    yield server.url
    server.stop()


@pytest.fixture
def redis(url: str) -> Iterator[Redis]:
    with Redis.from_url(url) as client:
        yield client


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncRedis]:
    client = await connect_async(url)
    yield client
    await client.aclose()


def test_the_lock_of_a_killed_runner_ends_in_its_time(redis: Redis, clocks: Clocks) -> None:
    ledger = Ledger(redis, RUN)
    assert ledger.lock("killed", 10)
    clocks.jump("redis", -HOUR)
    (key,) = redis.keys("*:lock")
    assert redis.ttl(key) > HOUR
    assert not ledger.lock("next", 10)
    assert redis.ttl(key) <= 10


def test_a_lock_that_others_take_for_longer_is_left_to_its_holder(redis: Redis) -> None:
    ledger = Ledger(redis, RUN)
    assert ledger.lock("one", 40)
    assert not ledger.lock("two", 10, longest=40)
    (key,) = redis.keys("*:lock")
    assert redis.ttl(key) > 10


@pytest.mark.parametrize("seen", [True, False])
async def test_the_lease_of_a_killed_judge_ends_in_its_time(
    redis: Redis, client: AsyncRedis, clocks: Clocks, seen: bool
) -> None:
    """Whether another judge saw the jump, or starts after it."""
    other = HeldJobs(redis, "other", lease_ttl=10)
    if seen:
        other.heed_clock()
    Ledger(redis, RUN).record(generation())
    taken = await WorkerJobs(PipelinedRedis(client), "killed", lease_ttl=10).take(1, idle=True)
    assert len(taken.jobs) == 1
    clocks.jump("redis", -HOUR)
    (key,) = redis.keys("plumbline:lease:*")
    assert redis.ttl(key) > HOUR
    other.heed_clock()
    assert 0 < redis.ttl(key) <= 10


@pytest.mark.parametrize(
    ("outcome", "retry_after"), [(CallOutcome.BROKEN, 0.0), (CallOutcome.REJECTED, 0.1)]
)
async def test_a_sandbox_is_not_left_out_for_longer(
    client: AsyncRedis, clocks: Clocks, outcome: CallOutcome, retry_after: float
) -> None:
    pool = SandboxPool(client, [ONE], "w", settings=SETTINGS)
    async with pool.permit() as permit:
        permit.report(outcome, retry_after)
    clocks.jump("redis", -HOUR)
    async with asyncio.timeout(60), pool.permit():
        (state,) = await pool.state()
        assert (state.ejected_for, state.paused_for) == (0.0, 0.0)
    await pool.close()


async def test_a_waiter_asks_again_in_its_time(client: AsyncRedis, clocks: Clocks) -> None:
    script = PermitScript(client, PipelinedRedis(client), [ONE], SETTINGS)
    waiting = asyncio.create_task(script.wait_for_wake("w", 0.5))
    while not (await client.info("clients"))["blocked_clients"]:
        await asyncio.sleep(0.01)
    clocks.jump("redis", -HOUR)
    async with asyncio.timeout(15):  # Redis would answer in an hour
        await waiting


async def test_who_waited_before_is_served_before_who_came_after(
    client: AsyncRedis, clocks: Clocks
) -> None:
    pool = SandboxPool(client, [ONE], "w", settings=replace(SETTINGS, ask_every=25.0))
    served: list[str] = []

    async def use(name: str) -> None:
        async with pool.permit():
            served.append(name)

    async with asyncio.timeout(60):
        async with pool.permit():
            first = asyncio.create_task(use("before"))
            await until(pool, lambda states: states[0].waiting == 1)
            clocks.jump("redis", -HOUR)
            second = asyncio.create_task(use("after"))
            await until(pool, lambda states: states[0].waiting == 2)
        await asyncio.gather(first, second)
    assert served == ["before", "after"]
    await pool.close()
