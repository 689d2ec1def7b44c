"""Adaptive limit (AIMD) and ejection of a sandbox."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from services.judge.permits import CallOutcome, Permit, PoolSettings, SandboxPool, SandboxState
from shared.ledger import connect_async
from tests.conftest import RedisServer
from tests.judge.pools import until

ONE, TWO = "http://sandbox-1:8080", "http://sandbox-2:8080"
OK, CONGESTED, REJECTED, BROKEN = CallOutcome


@pytest.fixture
async def client(redis: Redis, redis_server: RedisServer) -> AsyncIterator[AsyncRedis]:
    client = await connect_async(redis_server.url)
    yield client
    await client.aclose()


def settings(**changes: float) -> PoolSettings:
    values = {"max_concurrency": 16, "initial": 4, "ask_every": 25.0, "lease_ttl": 300.0}
    return PoolSettings(**{**values, **changes})


def make(client: AsyncRedis, *urls: str, **changes: float) -> SandboxPool:
    return SandboxPool(client, urls or (ONE,), "test", settings=settings(**changes))


async def place(pool: SandboxPool, number: int = 0) -> SandboxState:
    return (await pool.state())[number]


async def limit(pool: SandboxPool) -> float:
    return (await place(pool)).limit


async def use(
    pool: SandboxPool,
    *outcomes: CallOutcome | None,
    retry_after: float = 0,
    avoid: str | None = None,
) -> None:
    """Hold as many permits at once as there are outcomes, and report those in their order."""
    stacks = [AsyncExitStack() for _ in outcomes]
    permits = [await stack.enter_async_context(pool.permit(avoid=avoid)) for stack in stacks]
    for stack, permit, outcome in zip(stacks, permits, outcomes, strict=True):
        if outcome is not None:
            permit.report(outcome, retry_after)
        await stack.aclose()


# Up


async def test_starts_within_the_cap(client: AsyncRedis) -> None:
    assert await limit(make(client)) == 4
    assert await limit(make(client, initial=40)) == 16
    assert await limit(make(client, initial=1, minimum=3)) == 3


async def test_grows_by_one_in_as_many_successes_as_the_limit(client: AsyncRedis) -> None:
    pool = make(client)
    async with AsyncExitStack() as others:
        for _ in range(3):
            await others.enter_async_context(pool.permit())
        await use(pool, OK)
        assert await limit(pool) == pytest.approx(4.25)
        for _ in range(4):
            await use(pool, OK)
    assert await limit(pool) == pytest.approx(5.14, abs=0.02)


async def test_grows_only_in_use(client: AsyncRedis) -> None:
    pool = make(client)
    async with pool.permit():
        for _ in range(10):
            await use(pool, OK)
        assert await limit(pool) == 4
        async with pool.permit():
            await use(pool, OK)  # the third of four
        assert await limit(pool) == 4.25


async def test_grows_while_somebody_waits(client: AsyncRedis) -> None:
    pool = make(client)
    async with AsyncExitStack() as others:
        await others.enter_async_context(pool.permit())
        stack = AsyncExitStack()
        permit = await stack.enter_async_context(pool.permit())
        permit.report(OK)
        waiter = asyncio.create_task(_exclusive(pool))
        await until(pool, lambda s: s[0].waiting == 1)
        await stack.aclose()
        assert await limit(pool) == 4.25
    await waiter


async def _exclusive(pool: SandboxPool) -> None:
    async with pool.permit(exclusive=True):
        pass


async def test_does_not_grow_beyond_the_cap(client: AsyncRedis) -> None:
    pool = make(client, max_concurrency=5)
    for _ in range(8):
        await use(pool, *[OK] * int(await limit(pool)))
    assert await limit(pool) == 5


async def test_without_a_report_nothing_changes(client: AsyncRedis, redis: Redis) -> None:
    pool = make(client)
    await use(pool, *[None] * 4)
    assert not redis.keys("*:place:*")


async def test_the_settings_of_the_last_one_apply(client: AsyncRedis) -> None:
    pool, lower = make(client, initial=8), make(client, max_concurrency=3)
    await use(pool, *[OK] * 8)
    assert await limit(pool) > 8
    assert await limit(lower) == 3
    await use(lower, OK, OK, OK)
    assert await limit(pool) == 3


# Down


@pytest.mark.parametrize("outcome", [CONGESTED, REJECTED, BROKEN])
async def test_trouble_lowers_the_limit_by_a_factor(
    client: AsyncRedis, outcome: CallOutcome
) -> None:
    pool = make(client, initial=10)
    await use(pool, outcome)
    assert await limit(pool) == pytest.approx(7)


async def test_a_burst_counts_once(client: AsyncRedis) -> None:
    pool = make(client, initial=10, decrease_window=0.2)
    await use(pool, CONGESTED, REJECTED, BROKEN, CONGESTED)
    assert await limit(pool) == pytest.approx(7)
    await asyncio.sleep(0.25)
    await use(pool, CONGESTED, CONGESTED)
    assert await limit(pool) == pytest.approx(4.9)


async def test_each_sandbox_has_its_own_limit(client: AsyncRedis) -> None:
    pool = make(client, ONE, TWO, initial=10)
    await use(pool, CONGESTED, avoid=TWO)
    assert [s.limit for s in await pool.state()] == [pytest.approx(7), 10]


async def test_does_not_fall_below_the_minimum(client: AsyncRedis) -> None:
    pool = make(client, decrease_window=0)
    for _ in range(10):
        await use(pool, CONGESTED)
    assert await limit(pool) == 1


async def test_a_lowered_limit_holds_back(client: AsyncRedis) -> None:
    pool = make(client)
    async with AsyncExitStack() as others:
        for _ in range(3):
            await others.enter_async_context(pool.permit())
        await use(pool, CONGESTED)  # to 2.8
        waiter = asyncio.create_task(_exclusive(pool))
        await until(pool, lambda s: s[0].waiting == 1)
        await asyncio.sleep(0.05)
        assert (await place(pool)).waiting == 1
    await waiter


# Pauses


async def test_rejected_with_a_time_gets_nothing_for_so_long(client: AsyncRedis) -> None:
    pool = make(client)
    await use(pool, REJECTED, retry_after=0.4)
    began = time.monotonic()
    assert 0.3 < (await place(pool)).paused_for <= 0.4
    async with pool.permit():  # although nobody wakes it
        assert time.monotonic() - began > 0.3
    assert (await place(pool)).paused_for == 0


async def test_others_are_used_in_a_pause(client: AsyncRedis) -> None:
    pool = make(client, ONE, TWO)
    await use(pool, REJECTED, retry_after=60, avoid=TWO)
    async with AsyncExitStack() as stack:
        permits = [await stack.enter_async_context(pool.permit()) for _ in range(4)]
        assert {permit.url for permit in permits} == {TWO}


async def test_the_longest_pause_counts(client: AsyncRedis) -> None:
    pool = make(client)
    async with pool.permit() as last:
        await use(pool, REJECTED, retry_after=60)
        last.report(REJECTED, retry_after=1)
    assert (await place(pool)).paused_for > 50


# Ejections


async def test_ejected_after_breakages_in_a_row(client: AsyncRedis) -> None:
    pool = make(client, eject_base=60)
    for outcome in (BROKEN, BROKEN, OK, BROKEN, BROKEN, CONGESTED, BROKEN, BROKEN):
        await use(pool, outcome)
    assert (await place(pool)).ejected_for == 0
    await use(pool, BROKEN)
    assert 59 < (await place(pool)).ejected_for <= 60


async def test_others_are_used_during_an_ejection(client: AsyncRedis) -> None:
    pool = make(client, ONE, TWO, eject_base=60)
    await use(pool, BROKEN, BROKEN, BROKEN, avoid=TWO)
    async with AsyncExitStack() as stack:
        permits = [await stack.enter_async_context(pool.permit(avoid=TWO)) for _ in range(4)]
        assert {permit.url for permit in permits} == {TWO}


class Probes:
    """A sandbox that has been ejected for a moment; ``send`` waits for the moment to pass."""

    def __init__(self, pool: SandboxPool) -> None:
        self.pool = pool
        self._stack = AsyncExitStack()

    async def send(self) -> Permit:
        return await self._stack.enter_async_context(self.pool.permit())

    async def end(self, permit: Permit, outcome: CallOutcome | None) -> None:
        if outcome is not None:
            permit.report(outcome)
        await self._stack.aclose()

    async def waiters(self, number: int) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(use(self.pool, None)) for _ in range(number)]
        await until(self.pool, lambda s: s[0].waiting == number)
        return tasks


@pytest.fixture
async def probes(client: AsyncRedis) -> Probes:
    pool = make(client, eject_base=0.1, eject_after=2)
    await use(pool, BROKEN, BROKEN)
    assert (await place(pool)).ejected_for > 0
    return Probes(pool)


@pytest.mark.parametrize("answer", [OK, CONGESTED, REJECTED])
async def test_one_probe_and_then_all(probes: Probes, answer: CallOutcome) -> None:
    probe = await probes.send()
    assert (await place(probes.pool)).ejected_for == 0
    waiters = await probes.waiters(2)
    assert (await place(probes.pool)).in_use == 1
    await probes.end(probe, answer)
    await asyncio.gather(*waiters)
    await use(probes.pool, None, None)
    await use(probes.pool, BROKEN)
    assert (await place(probes.pool)).ejected_for == 0
    await use(probes.pool, BROKEN)
    assert 0 < (await place(probes.pool)).ejected_for <= 0.1


async def test_a_probe_that_breaks_prolongs_the_ejection(probes: Probes) -> None:
    for seconds in (0.2, 0.4):
        await probes.end(await probes.send(), BROKEN)
        assert seconds * 0.6 < (await place(probes.pool)).ejected_for <= seconds


async def test_an_ejection_has_a_longest_time(client: AsyncRedis) -> None:
    pool = make(client, eject_base=0.1, eject_max=0.15, eject_after=1)
    for _ in range(4):
        await use(pool, BROKEN)
    assert (await place(pool)).ejected_for <= 0.15


async def test_a_probe_that_tells_nothing_is_followed_by_another(probes: Probes) -> None:
    await probes.end(await probes.send(), None)
    probe = await probes.send()
    waiters = await probes.waiters(1)
    await probes.end(probe, OK)
    await asyncio.gather(*waiters)


async def test_only_the_probe_tells_news(client: AsyncRedis) -> None:
    """What had been sent before the ejection neither ends nor prolongs it."""
    pool = make(client, eject_base=0.2, eject_after=1)
    probes = Probes(pool)
    late = [pool.permit() for _ in range(2)]
    permits = [await each.__aenter__() for each in late]
    await use(pool, BROKEN)
    permits[0].report(BROKEN)
    await late[0].__aexit__(None, None, None)
    assert (await place(pool)).ejected_for <= 0.2
    probe = await probes.send()
    waiters = await probes.waiters(1)
    permits[1].report(OK)
    await late[1].__aexit__(None, None, None)
    assert (await place(pool)).waiting == 1
    await probes.end(probe, OK)
    await asyncio.gather(*waiters)


async def test_a_sandbox_that_comes_back_is_probed_at_once(client: AsyncRedis) -> None:
    pool = make(client, ONE, TWO, eject_base=0.05, eject_after=1, initial=10)
    await use(pool, BROKEN, avoid=TWO)
    async with pool.permit():
        await until(pool, lambda s: s[0].ejected_for == 0)
        async with pool.permit() as permit:
            assert permit.url == ONE


async def test_the_ejection_that_ends_first_is_waited_for(client: AsyncRedis, redis: Redis) -> None:
    pool = make(client, ONE, TWO, eject_base=60, eject_after=1)
    await use(pool, BROKEN, avoid=TWO)
    soon = make(client, ONE, TWO, eject_base=0.5, eject_after=1)
    await use(soon, BROKEN)
    first, second = await pool.state()
    assert first.ejected_for > 50
    assert 0.3 < second.ejected_for <= 0.5
    redis.config_resetstat()
    began = time.monotonic()
    await use(pool, OK)
    assert time.monotonic() - began > 0.3
    assert redis.info("commandstats")["cmdstat_evalsha"]["calls"] <= 30  # no busy loop
