"""Granting of permits: queue, load balancing, exclusive use."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.client import Pipeline

from services.judge.permits import CallOutcome, PoolSettings, SandboxPool, SandboxState
from shared.ledger import connect_async
from tests.conftest import RedisServer
from tests.judge.pools import until

ONE, TWO, THREE = (f"http://sandbox-{n}:8080" for n in (1, 2, 3))
# Nobody asks by itself in the time of a test: whoever gets something was woken.
PUSHED = PoolSettings(max_concurrency=8, initial=1, ask_every=25.0, lease_ttl=300.0)


@pytest.fixture
async def client(redis: Redis, redis_server: RedisServer) -> AsyncIterator[AsyncRedis]:
    client = await connect_async(redis_server.url)
    yield client
    await client.aclose()


class Users:
    """Tasks that want a permit each and keep it until they are told to leave."""

    def __init__(self, pool: SandboxPool) -> None:
        self.pool = pool
        self.served: list[str] = []
        self.places: dict[str, str] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._leave: dict[str, asyncio.Event] = {}
        self._here = asyncio.Condition()

    async def come(self, name: str, **request: Any) -> None:
        """Queue ``name`` up, or have it served."""
        self._leave[name] = asyncio.Event()
        waiting = (await self.pool.state())[0].waiting
        self.tasks[name] = asyncio.create_task(self._use(name, request))
        await until(self.pool, lambda s: name in self.served or s[0].waiting > waiting)

    async def _use(self, name: str, request: dict[str, Any]) -> None:
        async with self.pool.permit(**request) as permit:
            async with self._here:
                self.served.append(name)
                self.places[name] = permit.url
                self._here.notify_all()
            await self._leave[name].wait()

    async def leave(self, *names: str) -> None:
        for name in names:
            self._leave[name].set()
            await self.tasks[name]

    async def see(self, *names: str) -> None:
        """Wait until ``names`` have been served, and nobody else."""
        async with self._here, asyncio.timeout(10):
            await self._here.wait_for(lambda: set(names) <= set(self.served))
        assert set(self.served) == set(names)


def make(client: AsyncRedis, *urls: str, settings: PoolSettings = PUSHED) -> SandboxPool:
    return SandboxPool(client, urls, "test", settings=settings)


def limited(limit: int) -> PoolSettings:
    return PoolSettings(limit, initial=limit, ask_every=25.0, lease_ttl=300.0)


async def in_use(pool: SandboxPool) -> list[int]:
    return [place.in_use for place in await pool.state()]


# The limit


async def test_an_unknown_pool_is_empty(client: AsyncRedis) -> None:
    pool = make(client, TWO, ONE)
    assert await pool.state() == [
        SandboxState(ONE, 1.0, 0, 0, 0.0, 0.0),
        SandboxState(TWO, 1.0, 0, 0, 0.0, 0.0),
    ]


async def test_a_permit_is_counted_while_it_is_held(client: AsyncRedis) -> None:
    pool, same = make(client, ONE, TWO), make(client, TWO, ONE)
    other = make(client, ONE)
    async with pool.permit() as permit:
        assert permit.url in (ONE, TWO)
        assert sum(await in_use(pool)) == sum(await in_use(same)) == 1
        assert await in_use(other) == [0]
    assert await in_use(pool) == [0, 0]


async def test_the_limit_holds_for_each_sandbox(client: AsyncRedis) -> None:
    pools = [make(client, ONE, TWO, settings=limited(3)) for _ in range(2)]
    inside = {ONE: 0, TWO: 0}
    highest = 0

    async def use(pool: SandboxPool) -> None:
        nonlocal highest
        async with pool.permit() as permit:
            inside[permit.url] += 1
            highest = max(highest, *inside.values())
            await asyncio.sleep(0.001)
            inside[permit.url] -= 1

    await asyncio.gather(*[use(pools[i % 2]) for i in range(60)])
    assert highest == 3
    assert await in_use(pools[0]) == [0, 0]


async def test_an_error_inside_gives_the_permit_back(client: AsyncRedis) -> None:
    pool = make(client, ONE)
    with pytest.raises(ZeroDivisionError):
        async with pool.permit():
            raise ZeroDivisionError
    assert await in_use(pool) == [0]


@pytest.fixture
def round_trips(client: AsyncRedis, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of each round trip."""
    sent: list[list[str]] = []
    execute = client.execute_command

    def alone(*args: Any, **options: Any) -> Any:
        sent.append([args[0]])
        return execute(*args, **options)

    async def together(pipe: Pipeline, raise_on_error: bool = True) -> list[Any]:
        sent.append([command[0][0] for command in pipe.command_stack])
        return await run(pipe, raise_on_error)

    run = Pipeline.execute
    monkeypatch.setattr(client, "execute_command", alone)
    monkeypatch.setattr(Pipeline, "execute", together)
    return sent


async def test_two_round_trips_where_nobody_competes(
    client: AsyncRedis, round_trips: list[list[str]]
) -> None:
    pool = make(client, ONE, TWO)
    async with pool.permit():  # the server learns the script
        pass
    round_trips.clear()
    async with pool.permit() as permit:
        permit.report(CallOutcome.OK)
    assert round_trips == [["EVALSHA"], ["EVALSHA"]]


async def test_the_tasks_of_one_process_share_round_trips(
    client: AsyncRedis, round_trips: list[list[str]]
) -> None:
    pool = make(client, ONE, TWO, settings=limited(16))
    async with pool.permit():
        pass
    round_trips.clear()
    names = []

    async def use() -> None:
        async with pool.permit() as permit:
            names.append(permit.name)
            permit.report(CallOutcome.OK)

    await asyncio.gather(*(use() for _ in range(32)))
    assert len(set(names)) == 32
    assert round_trips == [["EVALSHA"], ["EVALSHA"]]
    assert await in_use(pool) == [0, 0]


async def test_one_process_leaves_another_its_turn(client: AsyncRedis) -> None:
    """Many waiters of one process do not pass a waiter of another that came before them."""
    settings = limited(1)
    busy, other = make(client, ONE, settings=settings), make(client, ONE, settings=settings)
    served: list[str] = []

    async def use(pool: SandboxPool, name: str) -> None:
        async with pool.permit():
            served.append(name)

    async with busy.permit():
        tasks = [asyncio.create_task(use(busy, "busy"))]
        await until(busy, lambda s: s[0].waiting == 1)
        tasks.append(asyncio.create_task(use(other, "other")))
        await until(busy, lambda s: s[0].waiting == 2)
        tasks += [asyncio.create_task(use(busy, "late")) for _ in range(5)]
        await until(busy, lambda s: s[0].waiting == 7)
    await asyncio.gather(*tasks)
    assert served == ["busy", "other", *["late"] * 5]


async def test_a_permit_takes_one_report(client: AsyncRedis) -> None:
    async with make(client, ONE).permit() as permit:
        permit.report(CallOutcome.OK)
        with pytest.raises(RuntimeError, match="already reported: ok"):
            permit.report(CallOutcome.BROKEN)


async def test_a_permit_is_renewed_while_it_is_held(client: AsyncRedis) -> None:
    settings = PoolSettings(1, initial=1, lease_ttl=0.3, ask_every=0.05)
    pool = make(client, ONE, settings=settings)
    async with pool.permit():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0), pool.permit():
                pytest.fail("the permit of another")
        assert await in_use(pool) == [1]
    await pool.close()


# The order


async def test_first_come_first_served(client: AsyncRedis) -> None:
    users = Users(make(client, ONE))
    names = [f"user {n}" for n in range(6)]
    for n, name in enumerate(names):
        await users.come(name, exclusive=n in (2, 3))
    for n, name in enumerate(names):
        await users.see(*names[: n + 1])
        await users.leave(name)
    assert users.served == names


async def test_who_comes_later_does_not_overtake(client: AsyncRedis) -> None:
    """Not even if it asks in the instant in which something is free."""
    users = Users(make(client, ONE))
    await users.come("holder")
    await users.come("waiter")
    users._leave["holder"].set()
    late = asyncio.create_task(users.come("late"))
    await users.see("holder", "waiter")
    await users.leave("waiter")
    await late
    await users.see("holder", "waiter", "late")
    await users.leave("late")


async def test_all_that_became_free_is_handed_out(client: AsyncRedis) -> None:
    """A limit that grew has room for more than the one who left."""
    users = Users(make(client, ONE, settings=PUSHED))
    async with users.pool.permit() as permit:
        for name in ("a", "b", "c"):
            await users.come(name)
        permit.report(CallOutcome.OK)
    await users.see("a", "b")
    await users.leave("a", "b", "c")


# The choice


async def test_load_is_balanced(client: AsyncRedis) -> None:
    users = Users(make(client, ONE, TWO, THREE, settings=limited(4)))
    for n in range(6):
        await users.come(f"user {n}")
        places = [list(users.places.values()).count(url) for url in (ONE, TWO, THREE)]
        assert max(places) - min(places) <= 1
    await users.leave(*users.tasks)


async def test_the_greatest_free_share_counts(client: AsyncRedis) -> None:
    settings = PoolSettings(10, initial=10, decrease_factor=0.3, ask_every=25, lease_ttl=300)
    users = Users(make(client, ONE, TWO, settings=settings))
    async with users.pool.permit(avoid=TWO) as permit:
        permit.report(CallOutcome.CONGESTED)
    assert [place.limit for place in await users.pool.state()] == [3, 10]
    for n in range(13):
        await users.come(f"user {n}")
        if n == 7:
            assert await in_use(users.pool) == [2, 6]
    assert await in_use(users.pool) == [3, 10]
    await users.leave(*users.tasks)


async def test_equals_take_turns(client: AsyncRedis) -> None:
    pool = make(client, ONE, TWO, THREE)
    used = set()
    for _ in range(100):
        async with pool.permit() as permit:
            used.add(permit.url)
    assert used == {ONE, TWO, THREE}


async def test_another_sandbox_than_the_avoided_one(client: AsyncRedis) -> None:
    users = Users(make(client, ONE, TWO))
    await users.come("first", avoid=ONE)
    assert users.places == {"first": TWO}
    await users.come("waits", avoid=ONE)
    await users.come("takes what is left")
    await users.see("first", "takes what is left")
    assert users.places["takes what is left"] == ONE
    await users.leave("first")
    await users.see("first", "takes what is left", "waits")
    assert users.places["waits"] == TWO
    await users.leave("waits", "takes what is left")


async def test_the_avoided_sandbox_if_there_is_no_other(client: AsyncRedis) -> None:
    async with make(client, ONE).permit(avoid=ONE) as permit:
        assert permit.url == ONE
    pool = make(client, ONE, TWO)
    async with pool.permit(avoid=ONE) as permit:
        permit.report(CallOutcome.REJECTED, retry_after=60)
    async with pool.permit(avoid=ONE) as permit:
        assert permit.url == ONE


async def test_a_sandbox_of_no_concern_may_be_avoided(client: AsyncRedis) -> None:
    async with make(client, ONE).permit(avoid="http://elsewhere") as permit:
        assert permit.url == ONE


# Alone


async def test_exclusive_waits_and_is_alone(client: AsyncRedis) -> None:
    users = Users(make(client, ONE, settings=limited(2)))
    await users.come("a")
    await users.come("b")
    await users.come("alone", exclusive=True)
    await users.come("c")
    await users.come("d")
    await users.leave("a")
    assert (await users.pool.state())[0].waiting == 3
    await users.leave("b")
    await users.see("a", "b", "alone")
    assert await in_use(users.pool) == [1]
    await users.leave("alone")
    await users.see("a", "b", "alone", "c", "d")
    await users.leave("c", "d")


async def test_others_go_on_elsewhere(client: AsyncRedis) -> None:
    users = Users(make(client, ONE, TWO, settings=limited(2)))
    await users.come("a", avoid=TWO)
    await users.come("b", avoid=ONE)
    await users.come("c", avoid=ONE)
    await users.come("alone", exclusive=True)
    await users.leave("b")
    await users.come("d")
    await users.come("e")
    assert await in_use(users.pool) == [1, 2]
    await users.leave("a")
    await users.see("a", "b", "c", "d", "alone")
    assert users.places["alone"] == ONE
    await users.leave("d")
    await users.see("a", "b", "c", "d", "alone", "e")
    assert users.places["d"] == users.places["e"] == TWO
    await users.leave("alone", "c", "e")


async def test_one_sandbox_is_drained_at_a_time(client: AsyncRedis) -> None:
    users = Users(make(client, ONE, TWO, settings=limited(2)))
    await users.come("a")
    await users.come("b")
    await users.come("alone", exclusive=True)
    await users.come("alone too", exclusive=True)
    await users.come("c")
    await users.see("a", "b", "c")
    await users.leave("a", "b", "c")
    await users.see("a", "b", "c", "alone", "alone too")
    assert users.places["alone"] != users.places["alone too"]
    await users.leave("alone", "alone too")


async def test_a_stream_of_others_does_not_starve_exclusive(client: AsyncRedis) -> None:
    pool = make(client, ONE, TWO, settings=limited(2))
    over = asyncio.Event()

    async def use_again_and_again() -> None:
        while not over.is_set():
            async with pool.permit():
                await asyncio.sleep(0.002)

    stream = [asyncio.create_task(use_again_and_again()) for _ in range(12)]
    for _ in range(5):
        async with asyncio.timeout(10), pool.permit(exclusive=True) as permit:
            counts = {place.url: place.in_use for place in await pool.state()}
            assert counts[permit.url] == 1
    over.set()
    await asyncio.gather(*stream)


async def test_a_stream_of_exclusives_does_not_starve_others(client: AsyncRedis) -> None:
    pool = make(client, ONE, settings=limited(2))
    over = asyncio.Event()

    async def use_again_and_again() -> None:
        while not over.is_set():
            async with pool.permit(exclusive=True):
                assert await in_use(pool) == [1]

    stream = [asyncio.create_task(use_again_and_again()) for _ in range(4)]
    for _ in range(5):
        async with asyncio.timeout(10), pool.permit():
            pass
    over.set()
    await asyncio.gather(*stream)


# Cancelled


async def nothing_is_left(pool: SandboxPool, redis: Redis) -> None:
    async with asyncio.timeout(10):
        await pool.close()
    assert [(place.in_use, place.waiting) for place in await pool.state()] == [(0, 0)]
    kinds = {key.decode().split(":")[3] for key in redis.keys("plumbline:permits:*")}
    assert kinds <= {"clock", "place"}


def elsewhere(url: str, what: Callable[[AsyncRedis], Any]) -> None:
    """Do something with a client of its own while this event loop stands still."""

    async def run() -> None:
        client = await connect_async(url)
        await what(client)
        await client.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    thread.join(60)


async def test_cancelled_while_it_waits(client: AsyncRedis, redis: Redis) -> None:
    users = Users(make(client, ONE))
    for name in ("a", "b", "c"):
        await users.come(name)
    users.tasks["b"].cancel()
    with pytest.raises(asyncio.CancelledError):
        await users.tasks["b"]
    assert (await users.pool.state())[0].waiting == 1
    await users.leave("a")
    await users.see("a", "c")
    await users.leave("c")
    await nothing_is_left(users.pool, redis)


async def test_cancelled_in_the_instant_of_the_grant(
    client: AsyncRedis, redis: Redis, redis_server: RedisServer
) -> None:
    users = Users(make(client, ONE))
    for name in ("a", "b", "c"):
        await users.come(name)
    (held,) = redis.keys("*:held:*")
    (name,) = redis.zrange(held, 0, -1)

    async def release(client: AsyncRedis) -> None:
        await make(client, ONE)._script.release(name.decode(), ONE, None, 0)

    elsewhere(redis_server.url, release)
    assert redis.zcard(held) == 1
    assert len(redis.keys("*:wake:*")) <= 1
    users.tasks["b"].cancel()
    with pytest.raises(asyncio.CancelledError):
        await users.tasks["b"]
    await users.see("a", "c")
    await users.leave("a")  # it does not hold anything any more
    assert await in_use(users.pool) == [1]
    await users.leave("c")
    await nothing_is_left(users.pool, redis)


@pytest.mark.parametrize("full", [False, True])
async def test_cancelled_at_any_step(client: AsyncRedis, redis: Redis, full: bool) -> None:
    pool = make(client, ONE)
    async with AsyncExitStack() as stack:
        if full:
            await stack.enter_async_context(pool.permit())

        async def use() -> None:
            async with pool.permit():
                pass

        for steps in range(60):
            task = asyncio.create_task(use())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await until(pool, lambda s: (s[0].in_use, s[0].waiting) == (int(full), 0))
    await nothing_is_left(pool, redis)


async def test_cancelled_while_it_holds(client: AsyncRedis, redis: Redis) -> None:
    users = Users(make(client, ONE))
    await users.come("a")
    await users.come("b")
    users.tasks["a"].cancel()
    await users.see("a", "b")
    await users.leave("b")
    await nothing_is_left(users.pool, redis)


async def test_a_second_cancellation_does_not_undo_the_first(
    client: AsyncRedis, redis: Redis
) -> None:
    for steps in range(8):
        users = Users(make(client, ONE))
        await users.come("a")
        await users.come("b")
        for name in ("b", "a"):
            users.tasks[name].cancel()
            for _ in range(steps):
                await asyncio.sleep(0)
            users.tasks[name].cancel()
            with pytest.raises(asyncio.CancelledError):
                await users.tasks[name]
        await nothing_is_left(users.pool, redis)


@pytest.mark.parametrize("steps", [1, 2, 4, 8])
async def test_cancelled_again_while_it_gives_back(
    client: AsyncRedis, redis: Redis, steps: int
) -> None:
    """Giving back takes a while here: there is no connection any more."""
    users = Users(make(client, ONE))
    await users.come("a")
    redis.client_kill_filter(_type="normal", skipme=True)
    users.tasks["a"].cancel()
    for _ in range(steps):
        await asyncio.sleep(0)
    users.tasks["a"].cancel()
    with pytest.raises(asyncio.CancelledError):
        await users.tasks["a"]
    await nothing_is_left(users.pool, redis)


# One sandbox of the pool


async def test_a_pinned_request_gets_its_sandbox_and_goes_before_others(
    client: AsyncRedis,
) -> None:
    pool = SandboxPool(client, [ONE, TWO], "w", settings=PUSHED)
    users = Users(pool)
    await users.come("a")
    await users.come("b")
    taken = users.places["a"]
    await users.come("waiting")
    await users.come("pinned", only=taken)
    await users.come("pinned alone", only=taken, exclusive=True)
    await users.leave("b")
    await until(pool, lambda states: "waiting" in users.served)
    assert users.places["waiting"] != taken
    await users.leave("a")
    await until(pool, lambda states: "pinned" in users.served)
    await users.leave("pinned")
    await until(pool, lambda states: "pinned alone" in users.served)
    assert users.places["pinned"] == users.places["pinned alone"] == taken
    await users.leave("pinned alone", "waiting")
    await pool.close()
