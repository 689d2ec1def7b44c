"""Load balancing, the queue, and admission control."""

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from services.generator.router.balancer import Balancer
from services.generator.router.replica import Replica
from tests.generator.router.conftest import Start
from tests.generator.router.engines import (
    FakeEngine,
    FakeFactory,
    FakeReplica,
    answer,
    wait_for_gate,
)


def balancer(engines: int = 2, slots: int = 4, queue_size: int = 100) -> Balancer:
    made = Balancer(slots=slots, queue_size=queue_size)
    for rank in range(engines):
        replica = FakeReplica(FakeEngine(str(rank), answer))
        replica.rank = rank
        made.add(replica)
    return made


async def waiting(balancer: Balancer) -> asyncio.Task[Replica]:
    before = balancer.queued
    task = asyncio.create_task(balancer.acquire())
    async with asyncio.timeout(1):
        while balancer.queued == before:
            await asyncio.sleep(0)
    return task


async def test_a_cancelled_waiter_returns_its_slot() -> None:
    b = balancer(1, slots=1)
    held = await b.acquire()
    leaves, stays = await waiting(b), await waiting(b)
    b.release(held)  # granted to the one that is cancelled now
    leaves.cancel()
    last = await stays
    b.release(last)
    await asyncio.wait_for(b.idle(), 1)
    assert b.queued == 0
    assert not last.in_flight


# Through the router


async def test_slots_and_queue_of_the_service(start: Start, factory: FakeFactory) -> None:
    factory.behave = wait_for_gate
    service = await start(2, router_max_in_flight=3, router_queue_size=4)
    asking = [asyncio.create_task(service.ask()) for _ in range(10)]
    await service.queues(4)
    async with service.post() as response:
        assert response.status == 429
        assert int(response.headers["Retry-After"]) >= 1
        assert (await response.json())["error"]["type"] == "rate_limit_error"
    text = await service.metrics()
    assert "plumbline_generator_requests_queued 4.0" in text
    assert 'plumbline_generator_requests_in_flight{replica="1"} 3.0' in text
    for engine in factory.engines:
        engine.gate.set()
    assert Counter(status for status, _, _ in await asyncio.gather(*asking)) == {200: 10}
    assert [engine.most_in_flight for engine in factory.engines] == [3, 3]


# Invariants


@given(st.integers(1, 6), st.integers(1, 60))
def test_a_burst_is_balanced_to_within_one_request(engines: int, burst: int) -> None:
    async def loads() -> list[int]:
        b = balancer(engines, slots=burst)
        by_rank = Counter(dict.fromkeys(range(engines), 0))
        by_rank.update([(await b.acquire()).rank for _ in range(burst)])
        return list(by_rank.values())

    counts = asyncio.run(loads())
    assert max(counts) - min(counts) <= 1


@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.none() | st.integers(0, 100), max_size=60),
)
def test_no_request_waits_while_a_replica_has_a_free_slot(
    engines: int, slots: int, happens: list[int | None]
) -> None:
    """What happens is the arrival of a request, or the end of one of those in flight."""

    async def play() -> None:
        b = balancer(engines, slots)
        asked: list[asyncio.Task[Replica]] = []
        in_flight: list[Replica] = []
        for what in happens:
            if what is None:
                asked.append(asyncio.create_task(b.acquire()))
            elif in_flight:
                b.release(in_flight.pop(what % len(in_flight)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # a request that was waiting goes on
            # In the order of arrival, so the granted ones are the first.
            while asked and asked[0].done():
                in_flight.append(asked.pop(0).result())
            assert not any(task.done() for task in asked)
            assert b.queued == len(asked)
            assert not asked or len(in_flight) == engines * slots
            taken = Counter(slot.rank for slot in in_flight)
            assert all(count <= slots for count in taken.values())
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(play())
