"""Supervision of replicas: start, readiness, restart, giving up, shutdown."""

import asyncio

import pytest

from services.generator.router import supervisor
from services.generator.router.app import serve_router
from services.generator.settings import GeneratorSettings
from shared.errors import ServiceError
from tests.generator.router.conftest import FAST, PROBING, Start
from tests.generator.router.engines import (
    FakeFactory,
    FakeReplica,
    hang,
    wait_for_gate,
)
from tests.waiting import eventually


def settings(**values: object) -> GeneratorSettings:
    return GeneratorSettings.model_validate({**FAST, **PROBING, **values})


async def test_all_start_at_once_and_the_first_serves(start: Start, factory: FakeFactory) -> None:
    factory.gates = {(0, 0): asyncio.Event(), (2, 0): asyncio.Event()}
    service = await start(3, wait=False)
    await service.are("starting", "healthy", "starting")
    assert factory.asked == [(0, 0), (1, 0), (2, 0)]
    assert (await service.ask())[2] == "replica-1.0"
    for gate in factory.gates.values():
        gate.set()
    await service.are("healthy", "healthy", "healthy")


async def test_readiness(start: Start, factory: FakeFactory) -> None:
    factory.gates[0, 0] = asyncio.Event()
    service = await start(wait=False, model="coder")
    for path, status in (("/readyz", 503), ("/health", 503), ("/healthz", 200)):
        async with service.get(path) as response:
            assert response.status == status
    factory.gates[0, 0].set()
    await service.are("healthy")
    async with service.get("/readyz") as response:
        assert response.status == 200
        state = await response.json()
    assert (state["ready"], state["model"], state["queued"]) == (True, "coder", 0)
    assert state["replicas"][0]["facts"] == {"gpus": 1, "generation": "of its own"}
    assert state["replicas"][0]["name"] == "replica-0.0"
    async with service.get("/info") as response:
        assert "backend" in await response.json()


async def test_health_is_200_while_at_least_one_replica_is_ready(
    start: Start, factory: FakeFactory
) -> None:
    async def health() -> tuple[int, bytes]:
        async with service.get("/health") as response:
            return response.status, await response.read()

    factory.gates = {(0, 1): asyncio.Event(), (1, 1): asyncio.Event()}
    service = await start(2, token="secret", **PROBING)  # and without the key, as vLLM's
    assert await health() == (200, b"")
    factory.engine(0).behave_to_probes = hang
    await service.are("starting", "healthy")
    assert await health() == (200, b"")
    factory.engine(1).behave_to_probes = hang
    await service.are("starting", "starting")
    assert await health() == (503, b"")
    factory.gates[0, 1].set()
    await service.are("healthy", "starting")
    assert await health() == (200, b"")


async def test_none_that_starts_is_the_end() -> None:
    factory = FakeFactory(errors={(0, 0): "no GPU is free", (1, 0): "something else"})
    with pytest.raises(ServiceError, match=r"no replica could be started: no GPU is free$"):
        await serve_router(settings(), factory, 2)


async def test_none_that_gives_a_token_is_the_end() -> None:
    class Mute(FakeFactory):
        async def start(self, rank: int, generation: int) -> FakeReplica:
            replica = await super().start(rank, generation)
            replica.engine.behave_to_probes = hang
            return replica

    factory = Mute()
    with pytest.raises(
        ServiceError, match=r"replica-0\.0 generates no token: no token within 0\.3 s"
    ):
        await serve_router(settings(), factory, 1)
    assert [replica.stops for replica in factory.replicas.values()] == [1]


async def test_a_start_that_takes_too_long_is_the_end() -> None:
    factory = FakeFactory(gates={(0, 0): asyncio.Event()})
    with pytest.raises(ServiceError, match=r"replica 0 was not ready within 0\.1 s"):
        await serve_router(settings(router_start_timeout=0.1), factory, 1)


async def test_one_that_always_fails_is_given_up_and_the_others_serve(
    start: Start, factory: FakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "RESTARTS_PER_HOUR", 3)
    factory.errors = {(0, generation): "broken GPU" for generation in range(10)}
    service = await start(2, wait=False)
    await service.are("given_up", "healthy")
    assert [key for key in factory.asked if key[0] == 0] == [(0, n) for n in range(4)]
    assert (await service.state())["replicas"][0]["error"] == "broken GPU"
    assert (await service.ask())[2] == "replica-1.0"
    assert not service.failed.is_set()
    assert 'replica_healthy{replica="0"} 0.0' in await service.metrics()


async def test_one_whose_machine_is_away_waits_for_it(
    start: Start, factory: FakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than the restarts that a defective one gets."""
    monkeypatch.setattr(supervisor, "RESTARTS_PER_HOUR", 1)
    factory.full = 5
    service = await start(2)
    factory.replicas[0, 0].end.set()
    await eventually(lambda: (0, 6) in factory.replicas)
    await service.are("healthy", "healthy")
    assert [key for key in factory.asked if key[0] == 0] == [(0, n) for n in range(7)]


async def test_all_given_up_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RESTARTS_PER_HOUR", 1)
    factory = FakeFactory(errors={(0, 1): "broken GPU"})
    service = asyncio.create_task(serve_router(settings(), factory, 1))
    await eventually(lambda: (0, 0) in factory.replicas)
    # The first probe is part of the start; the second one comes when the replica is ready.
    await factory.engine(0).until(lambda engine: engine.probes >= 2)
    await factory.engine(0).kill()
    with pytest.raises(ServiceError, match=r"every replica has been given up \(0: broken GPU\)"):
        await service


async def test_drain_finishes_what_is_in_flight_and_lets_nobody_in(
    start: Start, factory: FakeFactory
) -> None:
    factory.behave = wait_for_gate
    service = await start(1, router_max_in_flight=1)
    working = asyncio.create_task(service.ask())
    await factory.engine(0).has_received(1)
    queued = asyncio.create_task(service.ask())
    await service.queues(1)
    closing = asyncio.create_task(service.server.close())
    status, refused, _ = await queued
    assert (status, refused["error"]["code"]) == (503, "stopping")
    assert not working.done()
    factory.engine(0).gate.set()
    assert (await working)[0] == 200
    await closing
    assert factory.replicas[0, 0].stops == 1


async def test_drain_ends_after_the_grace_period(start: Start, factory: FakeFactory) -> None:
    factory.behaviours = {(0, 0): hang}
    service = await start(router_grace=0.2, shutdown_timeout=60)
    whole = asyncio.create_task(service.ask(max_tokens=8))
    await factory.engine(0).has_received(1)
    async with asyncio.timeout(30):  # none of the minute that the server itself would wait
        await service.server.close()
    status, refused, _ = await whole
    assert (status, refused["error"]["code"]) == (503, "stopping")
    assert all(replica.stops == 1 for replica in factory.replicas.values())


async def test_a_stop_does_not_wait_for_a_start(start: Start, factory: FakeFactory) -> None:
    factory.gates[0, 0] = asyncio.Event()
    service = await start(2, wait=False)
    await service.are("starting", "healthy")
    async with asyncio.timeout(5):
        await service.server.close()
    assert factory.replicas[1, 0].stops == 1


def test_restarts_come_slower_and_slower_until_they_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE", 1)
    restarts = supervisor.RestartBudget(lambda: now)
    pauses = [restarts.next_pause() for _ in range(11)]
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 120, 120, 120, None]
    now = 3599.0
    assert restarts.next_pause() is None
    now = 3600.0
    assert restarts.next_pause() == 1


async def test_one_that_does_not_start_is_tried_again(start: Start, factory: FakeFactory) -> None:
    factory.errors = {(0, 0): "no GPU is free", (0, 1): "no GPU is free"}
    service = await start(2)
    assert [key for key in factory.asked if key[0] == 0] == [(0, 0), (0, 1), (0, 2)]
    assert not service.failed.is_set()
