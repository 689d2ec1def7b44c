"""Health checks: healthy, suspect and ejected replicas."""

import asyncio

import pytest

from tests.generator.router.conftest import PROBING, Start
from tests.generator.router.engines import (
    Behaviour,
    FakeEngine,
    FakeFactory,
    Received,
    abort,
    answer,
    break_connection,
    hang,
    wait_for_gate,
    web,
    with_status,
)

NO_TOKEN: list[tuple[Behaviour, str]] = [
    (hang, "no token within 0.3 s"),
    (with_status(500), "HTTP 500"),
    (with_status(404), "HTTP 404"),
    (abort, "aborted"),
    (with_status(200, '{"choices": []}'), "no choice"),
    (with_status(200, "<html>"), "not JSON"),
    (break_connection, "reset"),
]


async def test_replicas_that_give_no_token_are_started_again(
    start: Start, factory: FakeFactory
) -> None:
    """Their /health says 200 throughout."""
    count = len(NO_TOKEN)
    factory.gates = {(rank, 1): asyncio.Event() for rank in range(count)}
    service = await start(count, **PROBING)
    for rank, (behave, _) in enumerate(NO_TOKEN):
        factory.engine(rank).behave_to_probes = behave
    await service.are(*["starting"] * count)
    for replica, (_, said) in zip((await service.state())["replicas"], NO_TOKEN, strict=True):
        assert said in replica["error"]
    for gate in factory.gates.values():
        gate.set()
    await service.are(*["healthy"] * count)
    assert (await service.ask())[2].endswith(".1")
    assert all(factory.replicas[rank, 0].stops == 1 for rank in range(count))
    assert 'replica_restarts_total{replica="0"} 1.0' in await service.metrics()


async def test_a_slow_probe_after_a_dropped_connection_is_no_death(
    start: Start, factory: FakeFactory
) -> None:
    factory.behaviours[0, 0] = break_connection
    service = await start(2, router_probe_failures=3, router_probe_timeout=0.3)
    doubted = factory.engine(0)
    doubted.behave_to_probes = wait_for_gate
    before = doubted.probes
    assert (await service.ask())[0] == 502
    assert (await service.ask())[2] == "replica-1.0"
    await service.are("suspect", "healthy")
    await doubted.until(lambda engine: engine.probes == before + 2)  # the first took too long
    assert len(doubted.received) == 1
    doubted.behave = answer
    doubted.gate.set()
    await service.are("healthy", "healthy")
    assert {(await service.ask())[2] for _ in range(2)} == {"replica-0.0", "replica-1.0"}


@pytest.mark.parametrize("counts", [True, False])
async def test_the_engines_counters_count_for_a_slow_probe(
    start: Start, factory: FakeFactory, counts: bool
) -> None:
    """Requests show nothing until they end."""
    factory.behaviours[0, 0] = wait_for_gate
    factory.metrics = 'vllm:generation_tokens_total{model_name="m"} 0\n'
    service = await start(**PROBING)
    engine = factory.engine(0)

    async def hang_and_count(
        engine: FakeEngine, request: web.Request, received: Received
    ) -> web.StreamResponse:
        if counts:
            engine.metrics = f"vllm:generation_tokens_total {engine.probes}\n"
        return await hang(engine, request, received)

    engine.behave_to_probes = hang_and_count
    asking = asyncio.create_task(service.ask())
    if counts:
        await engine.until(lambda engine: engine.probes >= 5)
        engine.gate.set()
    assert (await asking)[0] == (200 if counts else 502)


async def test_a_replica_that_ended_is_ejected_without_a_probe(
    start: Start, factory: FakeFactory
) -> None:
    """As an engine does whose requests hang when its process is killed."""
    factory.behaviours[0, 0] = hang
    service = await start(2)  # probes are a minute apart
    dead = factory.engine(0)
    probes = dead.probes
    asking = [asyncio.create_task(service.ask()) for _ in range(4)]
    await dead.has_received(2)
    factory.replicas[0, 0].end.set()
    answers = [await request for request in asking]
    codes = [answered["error"]["code"] for status, answered, _ in answers if status == 502]
    assert codes == ["replica_ejected"] * 2
    assert [status for status, _, _ in answers].count(200) == 2
    await service.are("healthy", "healthy")
    assert (dead.probes, factory.replicas[0, 0].stops) == (probes, 1)
    assert (await service.state())["replicas"][0]["error"] == "its process has ended"
