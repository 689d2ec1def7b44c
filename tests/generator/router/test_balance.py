"""Which replica gets a request, who waits, and who is turned away."""

import asyncio
from collections import Counter

import pytest

from services.generator.protocol import RequestError
from services.generator.router.asked import Asked
from services.generator.router.balancer import Balancer
from services.generator.router.engine import Engine
from services.generator.router.failures import AttemptError
from services.generator.router.lease import Lease
from tests.generator.router.conftest import Start
from tests.generator.router.engines import (
    FakeEngine,
    FakeFactory,
    FakeReplica,
    answer,
    event,
    streaming,
    wait_for_gate,
)


def asked(output: int = 10, prompt: int = 1) -> Asked:
    return Asked("/v1/completions", b"{}", None, prompt, output)


def balancer(engines: int = 2, places: int = 4, queue_size: int = 100) -> Balancer:
    made = Balancer(places=places, queue_size=queue_size)
    for rank in range(engines):
        made.add(Engine(rank, 0, FakeReplica(FakeEngine(str(rank), answer))))
    return made


async def lease(balancer: Balancer, output: int = 10) -> Lease:
    return await balancer.lease(balancer.ticket(asked(output)))


async def waiting(balancer: Balancer, output: int = 10) -> asyncio.Task[Lease]:
    before = balancer.queued
    task = asyncio.create_task(lease(balancer, output))
    async with asyncio.timeout(1):
        while balancer.queued == before:
            await asyncio.sleep(0)
    return task


async def test_fewest_outstanding_tokens_first() -> None:
    b = balancer(3)
    ranks = [(await lease(b, output)).engine.rank for output in (1000, 100, 10, 10, 10, 500, 10)]
    assert ranks == [0, 1, 2, 2, 2, 2, 1]


async def test_equal_ones_take_turns() -> None:
    b = balancer(3)
    leases = []
    for _ in range(6):
        leases.append(await lease(b))
        b.release(leases[-1], finished=True)
    assert [one.engine.rank for one in leases] == [0, 1, 2, 0, 1, 2]


async def test_a_stream_weighs_less_the_more_of_it_is_written() -> None:
    b = balancer(2)
    long = await lease(b, 1000)
    engine = long.engine
    assert engine.load == 1001
    long.progressed(1)
    assert engine.load == 999
    long.progressed(899)
    assert engine.load == 100
    long.progressed(500)  # more than it was to be
    assert engine.load == 0
    b.release(long, finished=True)
    assert engine.load == 0


async def test_places_are_limited_and_given_in_the_order_of_arrival() -> None:
    b = balancer(1, places=2)
    held = [await lease(b) for _ in range(2)]
    queue = [await waiting(b) for _ in range(3)]
    for index in range(2):
        b.release(held[index], finished=True)
        await queue[index]
        assert not queue[index + 1].done()
    assert b.queued == 1
    queue[2].cancel()


async def test_nobody_overtakes() -> None:
    b = balancer(1, places=1)
    held = await lease(b)
    first = await waiting(b)
    b.release(held, finished=True)  # the place is promised, though its task has not run yet
    late = asyncio.create_task(lease(b))
    held = await first
    assert not late.done()
    b.release(held, finished=True)
    await late


async def test_the_queue_is_bounded() -> None:
    b = balancer(1, places=1, queue_size=1)
    await lease(b)
    queued = await waiting(b)
    with pytest.raises(RequestError) as refused:
        await lease(b)
    assert refused.value.status == 429
    assert refused.value.retry_after is not None
    assert refused.value.retry_after >= 1
    queued.cancel()


async def test_who_was_let_in_waits_beyond_the_bound_and_in_its_old_place() -> None:
    b = balancer(1, places=1, queue_size=1)
    early = b.ticket(asked())
    held = await b.lease(early)
    queued = await waiting(b)
    b.release(held, finished=False)
    held = await queued
    queued = await waiting(b)
    early.tried.add(held.engine)
    again = asyncio.create_task(b.lease(early))
    while b.queued < 2:
        await asyncio.sleep(0)
    b.release(held, finished=True)
    await again
    assert not queued.done()
    queued.cancel()


async def test_engines_that_were_tried_come_last() -> None:
    b = balancer(2, places=1)
    first = await lease(b)
    ticket = b.ticket(asked())
    ticket.tried.add(first.engine)
    other = await b.lease(ticket)
    assert other.engine is not first.engine
    b.release(first, finished=True)
    again = asyncio.create_task(b.lease(ticket))
    while not b.queued:
        await asyncio.sleep(0)
    # Not to the free one it has failed on, as long as the other serves ...
    assert not again.done()
    # ... and nobody behind it has to wait for that.
    first = await lease(b)
    b.remove(other.engine)
    b.release(first, finished=True)
    assert (await again).engine is first.engine


async def test_a_doubted_engine_gets_nothing_until_it_gives_a_token() -> None:
    b = balancer(1)
    held = await lease(b)
    held.engine.dropped = True
    queued = await waiting(b)
    await asyncio.sleep(0)
    assert not queued.done()
    held.progressed(1)
    assert (await queued).engine is held.engine


async def test_who_leaves_the_queue_gives_its_place_back() -> None:
    b = balancer(1, places=1)
    held = await lease(b)
    leaves, stays = await waiting(b), await waiting(b)
    b.release(held, finished=True)  # promised to the one that leaves in this moment
    leaves.cancel()
    last = await stays
    b.release(last, finished=True)
    await asyncio.wait_for(b.idle(), 1)
    assert b.queued == 0
    assert last.engine.load == 0


async def test_eviction_reaches_a_lease_that_has_not_begun() -> None:
    b = balancer(1)
    held = await lease(b)
    assert held.engine.evict("gone") == 1
    with pytest.raises(AttemptError, match="gone"):
        async with held.until(asyncio.get_running_loop().time() + 10):
            pytest.fail("must not begin")
    held.evict("again")  # over already: nothing happens


async def test_closed_lets_nobody_in() -> None:
    b = balancer(1, places=1)
    held = await lease(b)
    queued = await waiting(b)
    b.close()
    for task in (queued, asyncio.create_task(lease(b))):
        with pytest.raises(RequestError) as refused:
            await task
        assert refused.value.status == 503
    idle = asyncio.create_task(b.idle())
    await asyncio.sleep(0)
    assert not idle.done()
    b.release(held, finished=True)
    await idle


# Through the router


async def test_long_and_short_requests_are_spread_by_their_tokens(
    start: Start, factory: FakeFactory
) -> None:
    """Every second request is long: in turns, one of two replicas would get all of those."""
    factory.behave = wait_for_gate
    service = await start(2)
    asking = []
    for number in range(20):
        length = 1000 if number % 2 == 0 else 10
        asking.append(asyncio.create_task(service.ask(max_tokens=length)))
        while sum(len(engine.received) for engine in factory.engines) <= number:
            await asyncio.sleep(0)
    work = [
        sum(one.document["max_tokens"] for one in engine.received) for engine in factory.engines
    ]
    assert sum(work) == 10_100
    assert abs(work[0] - work[1]) <= 1000  # in turns: 10,000 and 100
    for engine in factory.engines:
        engine.gate.set()
    await asyncio.gather(*asking)


async def test_places_and_queue_of_the_service(start: Start, factory: FakeFactory) -> None:
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
    assert 'plumbline_generator_outstanding_tokens{replica="1"} 30.0' in text
    for engine in factory.engines:
        engine.gate.set()
    assert Counter(status for status, _, _ in await asyncio.gather(*asking)) == {200: 10}
    assert [engine.most_in_flight for engine in factory.engines] == [3, 3]


async def test_who_leaves_while_waiting_is_forgotten(start: Start, factory: FakeFactory) -> None:
    factory.behave = wait_for_gate
    service = await start(1, router_max_in_flight=1)
    first, second = (asyncio.create_task(service.ask()) for _ in range(2))
    await service.queues(1)
    second.cancel()
    await service.queues(0)
    factory.engine(0).gate.set()
    assert (await first)[0] == 200
    assert len(factory.engine(0).received) == 1


async def test_streams_are_counted_down_in_the_service(start: Start, factory: FakeFactory) -> None:
    factory.behave = streaming(event("a"), event("b"), "gate")
    service = await start(1)
    async with service.post(stream=True, max_tokens=100) as response:
        for _ in range(2):
            await response.content.readuntil(b"\n\n")
        assert 'outstanding_tokens{replica="0"} 98.0' in await service.metrics()
