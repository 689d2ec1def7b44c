"""Forwarding: unchanged requests and responses, and rejected requests."""

import asyncio

import aiohttp
import pytest

from tests.generator.router.conftest import Start
from tests.generator.router.engines import (
    MODEL,
    FakeEngine,
    FakeFactory,
    Received,
    wait_for_gate,
    web,
    with_status,
)

JSON = {"Content-Type": "application/json"}


async def test_request_and_answer_are_passed_on_byte_for_byte(
    start: Start, factory: FakeFactory
) -> None:
    asked = b'{"messages" : [{"content":"?"}],  "unknown": [1.50, {"a": null}] }\n'
    odd = b'{ "choices":[{"finish_reason" : "stop"}],\n\n "x": "\\ud800", "big": 1e400 }  '

    async def answer_oddly(_e: FakeEngine, _q: web.Request, _r: Received) -> web.Response:
        return web.Response(body=odd, headers={"Content-Type": "application/json; charset=x"})

    factory.behave = answer_oddly
    service = await start()
    url = service.server.make_url("/v1/chat/completions")
    async with service.client.post(url, data=asked, headers=JSON) as response:
        assert await response.read() == odd
        assert response.headers["Content-Type"] == "application/json; charset=x"
    received = factory.engine(0).received[0]
    assert (received.body, received.path) == (asked, "/v1/chat/completions")
    assert received.headers["Content-Type"] == "application/json"


async def test_other_models_are_404(start: Start, factory: FakeFactory) -> None:
    service = await start(model="coder")
    async with service.get("/v1/models") as response:
        assert [model["id"] for model in (await response.json())["data"]] == ["coder"]
    for name in ("other", MODEL):
        status, answered, _ = await service.ask(model=name)
        assert (status, answered["error"]["code"]) == (404, "model_not_found")
    assert factory.engine(0).received == []


async def test_the_engine_gets_its_own_name_of_the_model(
    start: Start, factory: FakeFactory
) -> None:
    service = await start(model="coder")
    await service.ask(model="coder", tools=[{"model": "coder"}])
    document = factory.engine(0).received[0].document
    assert (document["model"], document["tools"]) == (MODEL, [{"model": "coder"}])


async def test_request_id_goes_through_and_comes_back(start: Start, factory: FakeFactory) -> None:
    service = await start()
    name = "run-1/humaneval/HumanEval%2F0/0"
    async with service.post(headers={"X-Request-Id": name}) as response:
        assert response.headers["X-Request-Id"] == name
        assert response.headers["X-Plumbline-Replica"] == "replica-0.0"
    assert factory.engine(0).received[0].request_id == name


async def test_unusable_request_id_is_replaced(start: Start, factory: FakeFactory) -> None:
    service = await start()
    for name in ("", "x" * 600, "n\xe4me"):
        async with service.post(headers={"X-Request-Id": name}) as response:
            assert response.status == 200
            request_id = response.headers["X-Request-Id"]
        assert request_id != name
        assert request_id == factory.engine(0).received[-1].request_id


async def test_the_routers_token_does_not_go_to_the_engine(
    start: Start, factory: FakeFactory
) -> None:
    service = await start(token="s3cret")
    headers = {"Authorization": "Bearer s3cret", "traceparent": "00-1-2-01", "Cookie": "a=b"}
    async with service.post(headers=headers) as response:
        assert response.status == 200
    received = factory.engine(0).received[0].headers
    assert "Authorization" not in received
    assert "Cookie" not in received
    assert received["traceparent"] == "00-1-2-01"


@pytest.mark.parametrize("status", [400, 429])
async def test_4xx_goes_back_unchanged_and_is_not_tried_again(
    start: Start, factory: FakeFactory, status: int
) -> None:
    factory.behave = with_status(status, '{"object":  "error", "message": "too long"}')
    service = await start(2)
    async with service.post() as response:
        assert response.status == status
        assert await response.text() == '{"object":  "error", "message": "too long"}'
    assert sum(len(engine.received) for engine in factory.engines) == 1
    await service.is_counted(f'plumbline_generator_requests_total{{outcome="http_{status}"}} 1.0')


async def test_a_stream_is_refused(start: Start, factory: FakeFactory) -> None:
    service = await start()
    status, refused, _ = await service.ask(stream=True)
    assert status == 400
    assert "not streamed" in refused["error"]["message"]
    assert factory.engine(0).received == []


async def test_client_that_leaves_takes_its_request_with_it(
    start: Start, factory: FakeFactory
) -> None:
    factory.behave = wait_for_gate
    service = await start()
    asking = asyncio.create_task(service.ask())
    engine = factory.engine(0)
    await engine.has_received(1)
    asking.cancel()
    await engine.until(lambda engine: engine.cancelled == 1)
    await service.is_counted('plumbline_generator_requests_total{outcome="cancelled"} 1.0')
    await service.is_counted('plumbline_generator_requests_in_flight{replica="0"} 0.0')


async def test_unknown_paths_are_refused_in_openais_shape(start: Start) -> None:
    service = await start()
    for method, path, status in (
        ("GET", "/", 404),
        ("POST", "/v1/chat/completions/batch", 404),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/health", 405),
    ):
        url = service.server.make_url(path)
        async with service.client.request(method, url) as response:
            assert response.status == status
            error = (await response.json())["error"]
        assert set(error) == {"message", "type", "code"}
        assert path in error["message"]


async def test_what_is_no_json_object_is_400(start: Start, factory: FakeFactory) -> None:
    service = await start()
    url = service.server.make_url("/v1/chat/completions")
    unusable = [b"", b"{not json", b"[]", b'"text"', b"[" * 100_000, b"\xff", b'{"a": NaN}']
    for body in (*unusable, b"1" * 10_000):
        async with service.client.post(url, data=body, headers=JSON) as response:
            assert response.status == 400
            assert (await response.json())["error"]["code"] == "invalid_json"
    assert factory.engine(0).received == []


async def test_too_large_a_body_is_413(start: Start, factory: FakeFactory) -> None:
    service = await start()
    megabyte = b" " * 2**20

    async def in_chunks():  # without a length told beforehand
        for _ in range(17):
            yield megabyte

    url = service.server.make_url("/v1/chat/completions")
    for data in (megabyte * 17, in_chunks()):
        try:
            async with service.client.post(url, data=data, headers=JSON) as response:
                assert response.status == 413
                assert (await response.json())["error"]["code"] == "too_large"
        except aiohttp.ClientOSError:
            pytest.fail("the connection broke instead of an answer")
    async with service.client.post(url, data=megabyte * 15 + b"{}", headers=JSON) as response:
        assert response.status == 200


async def test_bearer_token(start: Start) -> None:
    service = await start(token="s3cret\n")
    for token in ("", "Bearer wrong", "s3cret"):
        headers = {"Authorization": token}
        async with service.post(headers=headers) as response:
            assert response.status == 401
            assert (await response.json())["error"]["code"] == "invalid_api_key"
        async with service.get("/v1/models", headers=headers) as response:
            assert response.status == 401
    async with service.post(headers={"Authorization": "Bearer s3cret"}) as response:
        assert response.status == 200
    for path in ("/health", "/healthz", "/readyz", "/metrics"):
        async with service.get(path) as response:
            assert response.status == 200
