"""Failed requests: the client gets an error at once, and the replica no further request."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.generator.protocol import Usage, find_usage, is_aborted
from tests.generator.router.conftest import PROBING, Start
from tests.generator.router.engines import (
    Behaviour,
    FakeEngine,
    FakeFactory,
    Received,
    abort,
    break_connection,
    cut_off,
    hang,
    wait_for_gate,
    web,
    with_status,
)


async def cut(_e: FakeEngine, request: web.Request, _r: Received) -> web.StreamResponse:
    return await cut_off(request)


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (with_status(503, "engine\nis dead"), "server_error"),
        (abort, "abort"),
        (break_connection, "connection"),
        (cut, "connection"),
    ],
)
async def test_a_failed_replica_is_probed_and_its_request_is_an_error(
    start: Start, factory: FakeFactory, behave: Behaviour, reason: str
) -> None:
    factory.behaviours[0, 0] = behave
    service = await start(2)
    factory.engine(0).behave_to_probes = hang
    status, answered, _ = await service.ask()
    assert (status, answered["error"]["code"]) == (502, f"replica_{reason}")
    assert answered["error"]["message"].startswith("replica-0.0: ")
    assert "\n" not in answered["error"]["message"]
    await factory.engine(0).until(lambda engine: engine.probes >= 2)
    assert 'requests_total{outcome="http_502"} 1.0' in await service.metrics()


async def test_waits_for_a_replica_to_come_back(start: Start, factory: FakeFactory) -> None:
    factory.behaviours[0, 0] = wait_for_gate
    factory.gates[0, 1] = asyncio.Event()
    service = await start(**PROBING)
    asking = asyncio.create_task(service.ask())
    await factory.engine(0).has_received(1)
    await factory.engine(0).kill()
    assert (await asking)[0] == 502
    await service.are("starting")
    late = asyncio.create_task(service.ask())
    await service.queues(1)
    factory.gates[0, 1].set()
    status, _, replica = await late
    assert (status, replica) == (200, "replica-0.1")


# Answers


def choices(*reasons: object) -> bytes:
    return json.dumps({"choices": [{"finish_reason": reason} for reason in reasons]}).encode()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (choices("stop", "abort"), True),
        (choices("stop", None), False),
        (b'{"choices": [{"finish_reason":\n"abort"}]}', True),
        (b'{"choices": [{"text": "abort", "finish_reason": "stop"}]}', False),
        (b'{"finish_reason": "abort", "choices": ["abort"]}', False),
        (b'{"choices": "abort"}', False),
        (b'<html>"abort"', False),
    ],
)
def test_aborted(body: bytes, expected: bool) -> None:
    assert is_aborted(body) is expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(json_values, st.integers(0, 10**6), st.integers(0, 10**6))
@example({"usage": {}}, 1, 2)
@example({"text": '"usage": {"prompt_tokens": 9}'}, 1, 2)
@example(["usage", {"decoded_token": "usage"}], 1, 2)
def test_usage_of_an_answer(said: Any, prompt: int, completion: int) -> None:
    usage = {"prompt_tokens": prompt, "total_tokens": 0, "completion_tokens": completion}
    body = json.dumps({"choices": said, "usage": usage, "prompt_logprobs": None}).encode()
    assert find_usage(body) == Usage(prompt, completion)
