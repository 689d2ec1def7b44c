"""Relay of streams, and what the client receives when one breaks."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from tests.generator.router.conftest import Start
from tests.generator.router.engines import (
    DONE,
    USAGE,
    FakeEngine,
    FakeFactory,
    Received,
    event,
    streaming,
    whole_stream,
)

HI = event("Hi")


async def test_stream_is_passed_on_byte_for_byte(start: Start, factory: FakeFactory) -> None:
    factory.behave = whole_stream
    service = await start()
    expected = event() + HI + event(" there") + event("", "stop") + USAGE + DONE
    assert await service.stream(stream_options={"include_usage": True}) == expected
    text = await service.metrics()
    for line in (
        'plumbline_generator_tokens_total{kind="prompt"} 3.0',
        'plumbline_generator_tokens_total{kind="completion"} 2.0',
        "plumbline_generator_time_to_first_token_seconds_count 1.0",
        'plumbline_generator_requests_total{outcome="answered"} 1.0',
    ):
        assert line in text


async def test_headers_of_a_stream(start: Start, factory: FakeFactory) -> None:
    factory.behave = whole_stream
    service = await start()
    async with service.post(stream=True, headers={"X-Request-Id": "mine"}) as response:
        assert response.headers["X-Request-Id"] == "mine"
        assert response.headers["X-Plumbline-Replica"] == "replica-0.0"


async def test_events_come_as_they_are_made(start: Start, factory: FakeFactory) -> None:
    factory.behave = streaming(event(), HI, "gate", event("", "stop"), DONE)
    service = await start()
    async with service.post(stream=True) as response:
        first = await response.content.readuntil(b"\n\n")
        second = await response.content.readuntil(b"\n\n")
        assert (first, second) == (event(), HI)
        factory.engine(0).gate.set()
        assert await response.content.read() == event("", "stop") + DONE


async def test_events_in_pieces_arrive_whole(start: Start, factory: FakeFactory) -> None:
    whole = event() + HI + event("", "stop").replace(b"\n\n", b"\r\n\r\n") + b": ping\n\n" + DONE
    factory.behave = streaming(*(whole[at : at + 7] for at in range(0, len(whole), 7)))
    service = await start()
    assert await service.stream() == whole


async def test_an_end_that_does_not_come_is_not_waited_for(
    start: Start, factory: FakeFactory
) -> None:
    """After ``[DONE]`` nothing is missing, whatever becomes of the connection."""
    factory.behave = streaming(HI, DONE, "gate", "reset")
    service = await start()
    assert await service.stream() == HI + DONE
    await service.is_counted('plumbline_generator_requests_total{outcome="answered"} 1.0')


@pytest.mark.parametrize("pieces", [("reset",), ()])
async def test_what_breaks_before_the_first_event_is_taken_over(
    start: Start, factory: FakeFactory, pieces: tuple[str, ...]
) -> None:
    factory.behave = streaming(*pieces)
    factory.behaviours[1, 0] = whole_stream
    service = await start(2)
    expected = event() + HI + event(" there") + event("", "stop") + USAGE + DONE
    for _ in range(2):  # one of them begins at replica 0
        assert await service.stream() == expected
    assert len(factory.engine(0).received) >= 1
    assert 'plumbline_generator_requests_total{outcome="answered"} 2.0' in await service.metrics()


@pytest.mark.parametrize(
    ("pieces", "seen", "code"),
    [
        ((HI, "gate", "reset"), HI, "connection"),
        ((HI, event(" you")[:30], "gate", "reset"), HI + event(" you")[:30], "connection"),
        ((HI,), HI, "broken_stream"),
        ((HI, DONE[:8]), HI + DONE[:8], "broken_stream"),
    ],
)
async def test_what_breaks_later_ends_with_an_error_and_without_done(
    start: Start,
    factory: FakeFactory,
    pieces: tuple[bytes | str, ...],
    seen: bytes,
    code: str,
) -> None:
    factory.behave = streaming(*pieces)
    service = await start()
    async with service.post(stream=True) as response:
        got = await response.content.readuntil(b"\n\n")
        factory.engine(0).gate.set()  # only now, as a reset may overtake what was sent before it
        got += await response.content.read()
    assert got.startswith(seen)
    last = got.removeprefix(seen).lstrip()
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == code
    assert last.endswith(b"\n\n")
    await service.is_counted('plumbline_generator_requests_total{outcome="broken_stream"} 1.0')


async def test_words_that_look_like_trouble_are_none(start: Start, factory: FakeFactory) -> None:
    said = event('"error" "abort" [DONE]\n\ndata: [DONE]\n\n')
    logprob = b'data: {"choices": [{"text": "x", "logprobs": {"tokens": ["abort", "error"]}}]}\n\n'
    factory.behave = streaming(said, logprob, DONE)
    service = await start()
    assert await service.stream() == said + logprob + DONE


async def test_client_that_leaves_a_stream_ends_it_at_the_replica(
    start: Start, factory: FakeFactory
) -> None:
    factory.behave = streaming(HI, "gate")
    service = await start()
    async with service.post(stream=True) as response:
        await response.content.readuntil(b"\n\n")
    await factory.engine(0).until(lambda engine: engine.cancelled == 1)
    await service.is_counted('plumbline_generator_requests_total{outcome="cancelled"} 1.0')


async def test_deadline_ends_a_stream_that_was_begun(start: Start, factory: FakeFactory) -> None:
    factory.behave = streaming(HI, "gate")
    service = await start(router_deadline=0.3)
    got = await service.stream()
    assert got.startswith(HI)
    assert (
        json.loads(got.removeprefix(HI).strip().removeprefix(b"data: "))["error"]["code"]
        == "timeout"
    )


async def endless(
    engine: FakeEngine, request: web.Request, _received: Received
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    while True:
        await response.write(event("x" * 100_000))
        engine.written += 100_000


async def test_a_reader_that_stops_holds_its_replica_back(
    start: Start, factory: FakeFactory
) -> None:
    """Memory is bounded: what nobody reads is not collected."""
    factory.behave = endless
    service = await start()
    async with service.post(stream=True) as response:
        await response.content.readuntil(b"\n\n")
        before = -1
        while factory.engine(0).written != before:
            before = factory.engine(0).written
            await asyncio.sleep(0.3)
    assert factory.engine(0).written < 60_000_000


async def test_a_reader_that_stopped_is_dropped_at_the_deadline(
    start: Start, factory: FakeFactory
) -> None:
    factory.behave = endless
    service = await start(router_deadline=0.5)
    async with service.post(stream=True) as response:
        await response.content.readuntil(b"\n\n")
        await service.is_counted('plumbline_generator_requests_total{outcome="cancelled"} 1.0')
        with pytest.raises(aiohttp.ClientError):
            await response.read()
    await factory.engine(0).until(lambda engine: engine.in_flight == 0)
