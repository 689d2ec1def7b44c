"""Permits: the cap, exclusive use, pauses, and processes that are killed."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from services.judge.permits import SandboxPool
from shared.ledger import connect_async
from shared.ledger.pipelined import PipelinedRedis
from tests.conftest import RedisServer
from tests.waiting import eventually

ONE, TWO = (f"http://sandbox-{n}:8080" for n in (1, 2))


@pytest.fixture
async def client(redis: Redis, redis_server: RedisServer) -> AsyncIterator[AsyncRedis]:
    client = await connect_async(redis_server.url)
    yield client
    await client.aclose()


def make(client: AsyncRedis, *urls: str, cap: int = 1, lease: float = 300.0) -> SandboxPool:
    commands = PipelinedRedis(client)
    return SandboxPool(commands, urls, "test", max_concurrency=cap, lease=lease)


async def used(client: AsyncRedis) -> dict[str, int]:
    """The permits held of each sandbox."""
    names = [name.decode() for name in await client.keys("plumbline:permits:held:*")]
    return {name.rpartition(":held:")[2]: await client.zcard(name) for name in names}


class Users:
    """Tasks that want a permit each and keep it until they are told to leave."""

    def __init__(self, pool: SandboxPool) -> None:
        self.pool = pool
        self.places: dict[str, str] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._leave: dict[str, asyncio.Event] = {}

    async def come(self, *names: str, **request: Any) -> None:
        for name in names:
            self._leave[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._use(name, request))
        await asyncio.sleep(0.05)

    async def _use(self, name: str, request: dict[str, Any]) -> None:
        async with self.pool.permit(**request) as permit:
            self.places[name] = permit.url
            await self._leave[name].wait()
        del self.places[name]

    async def leave(self, *names: str) -> None:
        for name in names:
            self._leave[name].set()
            await self.tasks[name]

    async def served(self, *names: str) -> None:
        """Wait until ``names`` hold permits."""
        await eventually(lambda: set(names) <= self.places.keys(), 10)


# The cap


async def test_the_cap_holds_for_each_sandbox_over_all_pools(client: AsyncRedis) -> None:
    pools = [make(client, ONE, TWO, cap=3), make(client, TWO, ONE, cap=3)]
    inside, highest = {ONE: 0, TWO: 0}, 0

    async def use(pool: SandboxPool) -> None:
        nonlocal highest
        async with pool.permit() as permit:
            inside[permit.url] += 1
            highest = max(highest, *inside.values())
            await asyncio.sleep(0.001)
            inside[permit.url] -= 1

    await asyncio.gather(*(use(pools[i % 2]) for i in range(60)))
    assert highest == 3
    assert not any((await used(client)).values())


async def test_a_sandbox_may_have_a_lower_cap(client: AsyncRedis) -> None:
    pool = make(client, ONE, TWO, cap=4)
    pool.limit(ONE, 1)
    pool.limit(TWO, 9)
    users = Users(pool)
    await users.come(*"abcdef")
    await eventually(lambda: len(users.places) >= 5, 10)
    assert await used(client) == {ONE: 1, TWO: 4}
    (waiting,) = set("abcdef") - users.places.keys()
    await users.leave(*users.places)
    await users.served(waiting)
    await users.leave(waiting)


async def test_an_error_inside_and_a_cancellation_give_the_permit_back(
    client: AsyncRedis,
) -> None:
    pool = make(client, ONE)
    with pytest.raises(ZeroDivisionError):
        async with pool.permit():
            raise ZeroDivisionError
    users = Users(pool)
    await users.come("holds", "waits")
    for name in ("waits", "holds"):
        users.tasks[name].cancel()
        await asyncio.wait([users.tasks[name]])
    assert not any((await used(client)).values())


async def test_cancelled_at_any_step(client: AsyncRedis) -> None:
    pool = make(client, ONE)

    async def hold(exclusive: bool) -> None:
        async with pool.permit(exclusive=exclusive):
            await asyncio.sleep(60)

    for turns in range(40):
        for exclusive in (False, True):
            task = asyncio.create_task(hold(exclusive))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await pool.close()
            assert not any((await used(client)).values()), (turns, exclusive)
    async with asyncio.timeout(5), pool.permit(exclusive=True):
        pass


# Which sandbox


async def test_avoided_unless_all_others_are_paused(client: AsyncRedis) -> None:
    pool = make(client, ONE, TWO, cap=2)
    for _ in range(4):
        async with pool.permit(avoid=ONE) as permit:
            assert permit.url == TWO
    async with pool.permit(only=TWO) as permit:
        permit.paused = 30
    async with pool.permit(avoid=ONE) as permit:
        assert permit.url == ONE
    async with make(client, ONE).permit(avoid=ONE) as permit:
        assert permit.url == ONE


# Exclusive use


async def test_exclusive_waits_and_is_alone(client: AsyncRedis) -> None:
    users = Users(make(client, ONE, cap=3))
    await users.come("a", "b")
    await users.come("alone", exclusive=True)
    await users.come("later")
    assert users.places.keys() == {"a", "b"}
    await users.leave("a", "b")
    await users.served("alone")
    assert "later" not in users.places
    await users.leave("alone")
    await users.served("later")
    await users.leave("later")


async def test_neither_kind_starves_the_other(client: AsyncRedis) -> None:
    pool, served = make(client, ONE, cap=2), {False: 0, True: 0}
    ending = asyncio.Event()

    async def use(exclusive: bool) -> None:
        while not ending.is_set():
            async with pool.permit(exclusive=exclusive):
                served[exclusive] += 1
                await asyncio.sleep(0.001)

    users = [asyncio.create_task(use(bool(n % 2))) for n in range(8)]
    await eventually(lambda: min(served.values()) >= 10, 20)
    ending.set()
    await asyncio.gather(*users)


# Pauses


async def pauses(redis: Redis) -> list[float]:
    return [redis.pttl(key) / 1000 for key in redis.keys("plumbline:permits:paused:*")]


async def test_a_sandbox_that_rejects_is_paused(client: AsyncRedis, redis: Redis) -> None:
    pool, users = make(client, ONE, cap=9), Users(make(client, ONE))
    async with pool.permit() as permit:
        permit.paused = 0
    await users.come("a")
    assert not users.places
    await users.served("a")  # half a second later
    await users.leave("a")
    for first, second, longest in ((20, 2, 20), (2, 20, 20), (600, 0, 60)):
        async with pool.permit() as permit, pool.permit() as other:
            permit.paused = first
            other.paused = second
        (left,) = await pauses(redis)
        assert longest - 1 < left <= longest
        redis.delete(*redis.keys("*paused*"))


# Processes and Redis

HOLDER = """
import asyncio, sys
from services.judge.permits import SandboxPool
from shared.ledger import connect_async
from shared.ledger.pipelined import PipelinedRedis
async def main(url, sandbox):
    commands = PipelinedRedis(await connect_async(url))
    pool = SandboxPool(commands, [sandbox], "holder", max_concurrency=1, lease=1.0)
    async with pool.permit():
        print("held", flush=True)
        await asyncio.sleep(600)
asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_killed_holder_is_no_holder(client: AsyncRedis, redis_server: RedisServer) -> None:
    pool = make(client, ONE)
    command = [sys.executable, "-c", HOLDER, redis_server.url, ONE]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:  # noqa: ASYNC220
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"held\n"
        await asyncio.sleep(1.5)  # it renews its lease
        users = Users(pool)
        await users.come("a")
        assert not users.places
        holder.kill()
        await users.served("a")
    await users.leave("a")
