"""Retries: a replica fails, and another one answers."""

import asyncio

import pytest

from tests.generator.router.conftest import PROBING, Start
from tests.generator.router.engines import (
    Behaviour,
    FakeEngine,
    FakeFactory,
    Received,
    abort,
    body,
    break_connection,
    hang,
    wait_for_gate,
    web,
    with_status,
)


async def cut_off(_e: FakeEngine, request: web.Request, received: Received) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = 1000
    await response.prepare(request)
    await response.write(b'{"choices": [')
    assert request.transport is not None
    request.transport.close()
    return response


async def abort_one_of_three(
    _e: FakeEngine, _q: web.Request, received: Received
) -> web.StreamResponse:
    choices = [
        {"index": index, "message": {"content": "x"}, "finish_reason": reason}
        for index, reason in enumerate(["stop", "abort", "length"])
    ]
    return web.json_response({**body(received), "choices": choices})


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (with_status(500), "server_error"),
        (with_status(503), "server_error"),
        (abort, "abort"),
        (abort_one_of_three, "abort"),
        (break_connection, "connection"),
        (cut_off, "connection"),
    ],
)
async def test_another_replica_answers(
    start: Start, factory: FakeFactory, behave: Behaviour, reason: str
) -> None:
    factory.behaviours[0, 0] = behave
    service = await start(2)
    for _ in range(4):
        status, answered, replica = await service.ask()
        assert (status, replica) == (200, "replica-1.0")
        assert answered["choices"][0]["finish_reason"] == "stop"
    failed = len(factory.engine(0).received)
    assert failed >= 1
    line = f'plumbline_generator_retries_total{{reason="{reason}"}} {failed}.0'
    assert line in (await service.metrics()).splitlines()


async def test_no_progress_is_a_reason_too(start: Start, factory: FakeFactory) -> None:
    factory.behaviours[0, 0] = wait_for_gate
    service = await start(2, router_progress_timeout=0.3)
    replicas = {(await service.ask())[2] for _ in range(2)}
    assert replicas == {"replica-1.0"}
    assert 'retries_total{reason="timeout"} 2.0' in await service.metrics()


async def test_attempts_are_bounded(start: Start, factory: FakeFactory) -> None:
    factory.behave = with_status(500, "engine\nis dead")
    service = await start(3, router_max_attempts=2)
    status, answered, _ = await service.ask()
    assert (status, answered["error"]["code"]) == (502, "replica_server_error")
    assert "HTTP 500: engine is dead" in answered["error"]["message"]
    assert sorted(len(engine.received) for engine in factory.engines) == [0, 1, 1]
    assert 'retries_total{reason="server_error"} 1.0' in await service.metrics()


async def test_request_keeps_its_id_and_body_when_tried_again(
    start: Start, factory: FakeFactory
) -> None:
    factory.behave = with_status(500)
    service = await start(3, router_max_attempts=3)
    await service.ask(headers={"X-Request-Id": "mine"})
    received = [one for engine in factory.engines for one in engine.received]
    assert [one.request_id for one in received] == ["mine"] * 3
    assert len({one.body for one in received}) == 1


async def test_deadline_of_a_request_at_work(start: Start, factory: FakeFactory) -> None:
    factory.behave = wait_for_gate
    service = await start(router_deadline=0.2)
    status, answered, _ = await service.ask()
    assert (status, answered["error"]["code"]) == (504, "deadline_exceeded")
    await factory.engine(0).until(lambda engine: engine.cancelled == 1)


async def test_waits_for_a_replica_to_come_back(start: Start, factory: FakeFactory) -> None:
    factory.behaviours[0, 0] = wait_for_gate
    factory.gates[0, 1] = asyncio.Event()
    service = await start()
    asking = asyncio.create_task(service.ask())
    await factory.engine(0).has_received(1)
    await factory.engine(0).kill()
    await service.are("starting")
    late = asyncio.create_task(service.ask())
    await service.queues(2)
    factory.gates[0, 1].set()
    for task in (asking, late):
        status, _, replica = await task
        assert (status, replica) == (200, "replica-0.1")


async def test_503_where_none_comes_back_in_time(start: Start, factory: FakeFactory) -> None:
    factory.gates[0, 0] = asyncio.Event()
    service = await start(wait=False, router_deadline=0.2)
    async with service.post() as response:
        assert response.status == 503
        assert int(response.headers["Retry-After"]) >= 1
        assert (await response.json())["error"]["code"] == "no_replica"
        assert response.headers["X-Request-Id"]


async def test_a_paused_engine_loses_nothing(start: Start, factory: FakeFactory) -> None:
    """First it aborts what it has, then it answers nothing, and its /health stays well."""

    async def abort_at_the_gate(
        engine: FakeEngine, request: web.Request, received: Received
    ) -> web.StreamResponse:
        await engine.gate.wait()
        engine.behave = engine.behave_to_probes = hang
        return await abort(engine, request, received)

    factory.behaviours[0, 0] = abort_at_the_gate
    service = await start(2, **PROBING)
    asking = [asyncio.create_task(service.ask()) for _ in range(20)]
    paused = factory.engine(0)
    await paused.has_received(10)
    paused.gate.set()
    answers = await asyncio.gather(*asking)
    assert {status for status, _, _ in answers} == {200}
    await service.are("healthy", "healthy")
