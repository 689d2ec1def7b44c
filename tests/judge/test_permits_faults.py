"""Permits of killed and paused processes, and without Redis."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from services.judge.permits import CallOutcome, PoolSettings, SandboxPool
from shared.errors import ServiceError
from shared.ledger import connect_async
from tests.conftest import RedisServer
from tests.judge.pools import until

ONE, TWO = "http://sandbox-1:8080", "http://sandbox-2:8080"
SHORT = PoolSettings(1, initial=1, lease_ttl=0.6, ask_every=0.1, eject_after=1)

# What a process does: it holds permits for some time, one after the other, and says when.
PROCESS = """
import asyncio, sys, time
from services.judge.permits import CallOutcome, PoolSettings, SandboxPool
from shared.ledger import connect_async

async def main(redis_url, urls, settings, permits, seconds):
    client = await connect_async(redis_url)
    pool = SandboxPool(client, urls, "process", settings=settings)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(permits):
        async with pool.permit() as permit:
            print("in", time.monotonic(), permit.url, flush=True)
            await asyncio.sleep(seconds)
            print("out", time.monotonic(), permit.url, flush=True)
            permit.report(CallOutcome.BROKEN if seconds > 1 else CallOutcome.OK)
    print("end", flush=True)

asyncio.run(main(sys.argv[1], *eval(sys.argv[2])))
"""


class Process:
    """A real process that takes permits. Its lines are ``in``, ``out`` and ``end``."""

    def __init__(
        self, redis_url: str, urls: list[str], settings: PoolSettings, permits: int, seconds: float
    ) -> None:
        arguments = repr((urls, settings, permits, seconds))
        self._child = subprocess.Popen(
            [sys.executable, "-c", PROCESS, redis_url, arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def go(self) -> None:
        """Let it begin as soon as it can."""
        assert self._child.stdin is not None
        self._child.stdin.write("go\n")
        self._child.stdin.flush()

    def line(self, word: str) -> tuple[float, str]:
        """Wait for the next line, which must begin with ``word``."""
        assert self._child.stdout is not None
        first, *rest = self._child.stdout.readline().split()
        assert first == word
        return (float(rest[0]), rest[1]) if rest else (0.0, "")

    def lines(self) -> list[tuple[str, float, str]]:
        """All lines up to its end but what it logged."""
        output, _ = self._child.communicate(timeout=60)
        *lines, end = [line.split() for line in output.splitlines()]
        assert end == ["end"]
        return [(line[0], float(line[1]), line[2]) for line in lines if line[0] in ("in", "out")]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._child.pid, number)

    def end(self) -> None:
        self._child.kill()
        with contextlib.suppress(ValueError):  # all has been read
            self._child.communicate()


class Processes:
    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self._all: list[Process] = []

    async def start(
        self,
        *urls: str,
        settings: PoolSettings = SHORT,
        permits: int = 1,
        seconds: float = 30,
        go: bool = True,
    ) -> Process:
        process = Process(self._redis_url, list(urls or [ONE]), settings, permits, seconds)
        self._all.append(process)
        if go:
            await asyncio.to_thread(process.line, "ready")
            process.go()
        return process

    def end(self) -> None:
        for process in self._all:
            process.end()


@pytest.fixture
def processes(redis: Redis, redis_server: RedisServer) -> Iterator[Processes]:
    processes = Processes(redis_server.url)
    yield processes
    processes.end()


@pytest.fixture
async def client(redis: Redis, redis_server: RedisServer) -> AsyncIterator[AsyncRedis]:
    client = await connect_async(redis_server.url)
    yield client
    await client.aclose()


@pytest.fixture
async def pool(client: AsyncRedis) -> AsyncIterator[SandboxPool]:
    pool = SandboxPool(client, [ONE], "test", settings=SHORT)
    yield pool
    await pool.close()


async def taken(pool: SandboxPool) -> float:
    """The moment in which a permit is got, long before a living holder would give one back."""
    async with asyncio.timeout(20), pool.permit():
        return time.monotonic()


# Processes


async def test_the_limit_holds_over_processes(processes: Processes) -> None:
    settings = PoolSettings(max_concurrency=2, initial=2)
    some = [
        await processes.start(ONE, TWO, settings=settings, permits=20, seconds=0.01, go=False)
        for _ in range(6)
    ]
    for each in some:
        each.line("ready")
    for each in some:
        each.go()
    events = sorted((e for each in some for e in each.lines()), key=lambda event: event[1])
    inside, highest = {ONE: 0, TWO: 0}, {ONE: 0, TWO: 0}
    for word, _, url in events:
        inside[url] += 1 if word == "in" else -1
        highest[url] = max(highest[url], inside[url])
    assert len(events) == 6 * 20 * 2
    assert highest == {ONE: 2, TWO: 2}


async def test_a_killed_holder_is_no_holder(pool: SandboxPool, processes: Processes) -> None:
    holder = await processes.start()
    holder.line("in")
    waiter = asyncio.create_task(taken(pool))
    await until(pool, lambda s: s[0].waiting == 1)
    holder.signal(signal.SIGKILL)
    await waiter


async def test_the_dead_are_not_counted(pool: SandboxPool, processes: Processes) -> None:
    """Although nobody comes who would find them."""
    holder = await processes.start()
    holder.line("in")
    waiter = await processes.start()
    await until(pool, lambda s: (s[0].in_use, s[0].waiting) == (1, 1))
    waiter.signal(signal.SIGKILL)
    await until(pool, lambda s: (s[0].in_use, s[0].waiting) == (1, 0))
    holder.signal(signal.SIGKILL)
    await until(pool, lambda s: s[0].in_use == 0)


async def test_a_killed_holder_is_found_by_who_comes_later(
    pool: SandboxPool, processes: Processes
) -> None:
    holder = await processes.start()
    holder.line("in")
    holder.signal(signal.SIGKILL)
    await asyncio.sleep(2 * SHORT.lease_ttl)
    await taken(pool)


async def test_a_killed_waiter_does_not_block(client: AsyncRedis, processes: Processes) -> None:
    """It is passed over, which is quicker than waiting that it does not come for its permit."""
    settings = PoolSettings(max_concurrency=1, initial=1, ask_every=0.5)
    pool = SandboxPool(client, [ONE], "test", settings=settings)
    async with pool.permit():
        first = await processes.start(settings=settings)
        await until(pool, lambda s: s[0].waiting == 1)
        later = asyncio.create_task(taken(pool))
        await until(pool, lambda s: s[0].waiting == 2)
        first.signal(signal.SIGKILL)
        await until(pool, lambda s: s[0].waiting == 1)
    await later
    assert (await pool.state())[0].waiting == 0


async def test_a_waiter_killed_when_it_was_granted(
    client: AsyncRedis, processes: Processes
) -> None:
    """The permit that it did not come for is free long before one in use would be."""
    settings = PoolSettings(max_concurrency=1, initial=1, lease_ttl=60, ask_every=0.3)
    pool = SandboxPool(client, [ONE], "test", settings=settings)
    async with pool.permit():
        first = await processes.start(settings=settings)
        await until(pool, lambda s: s[0].waiting == 1)
        first.signal(signal.SIGSTOP)
    assert (await pool.state())[0].in_use == 1
    first.signal(signal.SIGKILL)
    await taken(pool)


@pytest.mark.nightly
async def test_a_paused_holder_gives_back_what_it_does_not_hold(
    pool: SandboxPool, processes: Processes
) -> None:
    holder = await processes.start(seconds=1.5)
    holder.line("in")
    holder.signal(signal.SIGSTOP)
    async with pool.permit():
        holder.signal(signal.SIGCONT)
        await asyncio.to_thread(holder.lines)
        (place,) = await pool.state()
        assert place.in_use == 1
        assert place.ejected_for == 0
        late = asyncio.create_task(taken(pool))
        await until(pool, lambda s: s[0].waiting == 1)
        assert not late.done()
    await late


@pytest.mark.nightly
async def test_a_paused_waiter_comes_back_to_its_place(
    pool: SandboxPool, processes: Processes
) -> None:
    async with pool.permit():
        first = await processes.start(seconds=0)
        await until(pool, lambda s: s[0].waiting == 1)
        later = asyncio.create_task(taken(pool))
        await until(pool, lambda s: s[0].waiting == 2)
        first.signal(signal.SIGSTOP)
        await until(pool, lambda s: s[0].waiting == 1)
        first.signal(signal.SIGCONT)
        await until(pool, lambda s: s[0].waiting == 2)
    (_, came_in, _), _ = await asyncio.to_thread(first.lines)
    assert came_in < await later


# Redis


async def test_a_restart_of_redis(own_redis_server: RedisServer) -> None:
    """Holders keep their permits and waiters their order, however long it takes."""
    client = await connect_async(own_redis_server.url)
    settings = PoolSettings(max_concurrency=1, initial=1, lease_ttl=3.0, ask_every=0.3)
    pool = SandboxPool(client, [ONE], "test", settings=settings)
    served: list[int] = []

    async def use(number: int) -> None:
        async with pool.permit():
            served.append(number)

    async with pool.permit():
        waiters = []
        for number in range(4):
            waiters.append(asyncio.create_task(use(number)))
            await until(pool, lambda s, number=number: s[0].waiting == number + 1)
        own_redis_server.kill()
        await asyncio.sleep(settings.lease_ttl + 0.5)
        own_redis_server.start_again()
        await until(pool, lambda s: s[0].in_use == 1)
        await asyncio.sleep(settings.lease_ttl)
        assert served == []
    await asyncio.gather(*waiters)
    assert served == [0, 1, 2, 3]
    assert [(s.in_use, s.waiting) for s in await pool.state()] == [(0, 0)]
    await client.aclose()


@pytest.mark.nightly
async def test_work_goes_on_over_a_restart(own_redis_server: RedisServer) -> None:
    client = await connect_async(own_redis_server.url)
    pool = SandboxPool(client, [ONE], "test", settings=PoolSettings(max_concurrency=2))
    done, inside, highest = 0, 0, 0
    some = asyncio.Event()

    async def work() -> None:
        nonlocal done, inside, highest
        for _ in range(40):
            async with pool.permit() as permit:
                inside += 1
                highest = max(highest, inside)
                await asyncio.sleep(0.001)
                inside -= 1
                permit.report(CallOutcome.OK)
            done += 1
            if done == 50:
                some.set()

    workers = [asyncio.create_task(work()) for _ in range(5)]
    await some.wait()
    own_redis_server.kill()
    own_redis_server.start_again()
    await asyncio.gather(*workers)
    assert (done, highest) == (200, 2)
    assert [(s.in_use, s.waiting) for s in await pool.state()] == [(0, 0)]
    await client.aclose()


async def test_redis_is_gone(own_redis_server: RedisServer) -> None:
    client = await connect_async(own_redis_server.url, retries=2)
    pool = SandboxPool(client, [ONE], "test", settings=SHORT)
    own_redis_server.kill()
    with pytest.raises(ServiceError, match="sandbox permits are unavailable: Redis: "):
        async with pool.permit():
            pytest.fail("a permit from nowhere")
    await client.aclose()


async def test_no_redis_there(redis_server: RedisServer) -> None:
    with pytest.raises(ServiceError, match="not a Redis URL"):
        await connect_async("http://127.0.0.1:6379")
    with pytest.raises(ServiceError, match="not reachable"):
        await connect_async("redis://127.0.0.1:1/0")
    port = urlsplit(redis_server.url).port
    with pytest.raises(ServiceError, match="refuses the password"):
        await connect_async(f"redis://:wrong@127.0.0.1:{port}/0")


# Anything in any order


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 6))]
)
async def test_whatever_users_do(client: AsyncRedis, redis: Redis, seed: int) -> None:
    """The limit is never exceeded, nobody is forgotten, and nothing is left."""
    chance = random.Random(seed)
    settings = PoolSettings(
        max_concurrency=3, initial=3, decrease_window=0.01, eject_base=0.01, eject_max=0.02
    )
    pools = [SandboxPool(client, [ONE, TWO], f"pool {n}", settings=settings) for n in range(3)]
    inside: dict[str, list[bool]] = {ONE: [], TWO: []}

    async def hold(pool: SandboxPool, exclusive: bool) -> None:
        avoid = chance.choice([None, None, ONE, TWO])
        async with pool.permit(exclusive=exclusive, avoid=avoid) as permit:
            place = inside[permit.url]
            place.append(exclusive)
            try:
                assert len(place) <= 3
                assert place == [True] or True not in place
                await asyncio.sleep(chance.random() * 0.01)
            finally:
                place.remove(exclusive)
            if outcome := chance.choice([None, *CallOutcome, CallOutcome.OK, CallOutcome.OK]):
                permit.report(outcome, retry_after=chance.choice([0, 0.01]))

    async def user() -> None:
        for _ in range(8):
            use = asyncio.create_task(hold(chance.choice(pools), chance.random() < 0.1))
            if chance.random() < 0.4:
                await asyncio.sleep(chance.choice([0, 0.001, chance.random() * 0.05]))
                for _ in range(chance.randrange(1, 3)):
                    use.cancel()
                    await asyncio.sleep(0)
            with contextlib.suppress(asyncio.CancelledError):
                await use

    async with asyncio.timeout(60):
        await asyncio.gather(*[user() for _ in range(25)])
    for pool in pools:
        await pool.close()
    assert [(s.in_use, s.waiting) for s in await pools[0].state()] == [(0, 0), (0, 0)]
    assert {key.decode().split(":")[3] for key in redis.keys("*")} == {"clock", "place"}
