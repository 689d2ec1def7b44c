"""Load: many concurrent requests, and replicas that die meanwhile."""

import asyncio
from collections import Counter

import pytest

from tests.generator.router.conftest import Service, Start
from tests.generator.router.engines import FakeEngine, FakeFactory, Received, hang, web
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("open_files")


async def echo(_e: FakeEngine, _q: web.Request, received: Received) -> web.StreamResponse:
    """Answers, after a while, with what was asked."""
    await asyncio.sleep(0.05)
    text = received.document["messages"][0]["content"]
    choice = {"message": {"content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    return web.json_response({"choices": [choice], "usage": usage})


async def ask_for(service: Service, text: str) -> str:
    """The answer, with the retries of a client."""
    while True:
        status, answered, _ = await service.ask(messages=[{"role": "user", "content": text}])
        if status == 200:
            return str(answered["choices"][0]["message"]["content"])
        assert status == 502
        await asyncio.sleep(0.05)


async def echo_at_the_gate(
    engine: FakeEngine, request: web.Request, received: Received
) -> web.StreamResponse:
    await engine.gate.wait()
    return await echo(engine, request, received)


@pytest.mark.parametrize("count", [300, pytest.param(2000, marks=pytest.mark.nightly)])
async def test_many_requests_at_once(start: Start, factory: FakeFactory, count: int) -> None:
    factory.behave = echo_at_the_gate
    slots = count // 8
    service = await start(3, router_max_in_flight=slots, router_queue_size=count - 3 * slots)
    names = [f"question {number}" for number in range(count)]
    asking = [asyncio.create_task(ask_for(service, name)) for name in names]
    await service.queues(count - 3 * slots)
    for engine in factory.engines:
        await engine.has_received(slots)
    for engine in factory.engines:
        engine.gate.set()
    assert await asyncio.gather(*asking) == names
    assert sum(len(engine.received) for engine in factory.engines) == count
    assert max(engine.most_in_flight for engine in factory.engines) <= slots
    assert 'requests_in_flight{replica="0"} 0.0' in await service.metrics()


@pytest.mark.parametrize("end", ["kill", "hang"])
async def test_a_replica_ends_under_load_and_nothing_is_lost(
    start: Start, factory: FakeFactory, end: str
) -> None:
    factory.behave = echo
    service = await start(3, router_probe_interval=0.2, router_probe_timeout=0.5)
    answered: Counter[str] = Counter()
    stop = asyncio.Event()

    async def client(number: int) -> None:
        turn = 0
        while not stop.is_set():
            name = f"{number}.{turn}"
            assert await ask_for(service, name) == name
            answered[name] += 1
            turn += 1

    clients = [asyncio.create_task(client(number)) for number in range(30)]
    ending = factory.engine(1)
    await ending.has_received(20)
    if end == "kill":
        await ending.kill()
    else:
        ending.behave = ending.behave_to_probes = hang
    await eventually(lambda: (1, 1) in factory.replicas)
    await factory.engine(1, 1).has_received(20)
    stop.set()
    await asyncio.gather(*clients)
    assert set(answered.values()) == {1}
    text = await service.metrics()
    assert f'requests_total{{outcome="answered"}} {len(answered)}.0' in text
    assert 'replica_restarts_total{replica="1"} 1.0' in text
    assert factory.replicas[1, 0].stops == 1
    assert factory.asked.count((0, 0)) == factory.asked.count((2, 0)) == 1
    assert len(factory.asked) == 4
