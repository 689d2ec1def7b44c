"""Requests that hold more than any call needs, at the router and at the replay backend."""

import json
from typing import Any

from tests.generator.conftest import Replay
from tests.generator.router.conftest import Start
from tests.generator.router.engines import FakeFactory

MANY = 201_000
SMALL = 2000
USER = {"role": "user", "content": "?"}

JSON = {"Content-Type": "application/json"}


def wrong(count: int) -> dict[str, dict[str, Any]]:
    return {
        "messages": {"messages": [1] * count},
        "parts": {"messages": [{"role": "user", "content": [1] * count}]},
        "roles": {"messages": [{"content": ""}] * count},
        "fields": {"messages": [1], **{f"a{i}": 1 for i in range(count)}},
        "stop": {"messages": [1], "stop": [1] * count},
        "model": {"messages": [USER], "model": "x" * count},
    }


async def test_replay_has_a_small_answer(replay: Replay) -> None:
    client = await replay()
    failures = []
    for count in (4000, MANY):
        for place, request in wrong(count).items():
            response = await client.post("/v1/chat/completions", json=request)
            size = len(await response.text())
            alive = (await client.get("/healthz")).status == 200
            if not (400 <= response.status < 500 and size < SMALL and alive):
                failures.append((place, count, response.status, size, alive))
    assert failures == []


async def test_router_forwards_no_flood_of_members(start: Start, factory: FakeFactory) -> None:
    service = await start()
    url = service.server.make_url("/v1/chat/completions")
    failures = []
    for count in (5000, MANY):
        requests = wrong(count)
        del requests["model"], requests["parts"]  # the engine checks these
        for place, request in requests.items():
            async with service.client.post(url, json=request) as response:
                size = len(await response.text())
                if response.status not in (400, 413) or size >= SMALL:
                    failures.append((place, count, response.status, size))
    assert failures == []
    assert factory.engine(0).received == []


async def test_numbers_that_are_not_json_are_400(
    start: Start, factory: FakeFactory, replay: Replay
) -> None:
    service, client = await start(), await replay()
    url = service.server.make_url("/v1/chat/completions")
    statuses = {}
    for number in ("NaN", "Infinity", "-Infinity"):
        body = json.dumps({"messages": [USER], "temperature": 0}).replace(": 0", f": {number}")
        async with service.client.post(url, data=body, headers=JSON) as response:
            answer = await client.post("/v1/chat/completions", data=body, headers=JSON)
            statuses[number] = (response.status, answer.status)
    assert statuses == dict.fromkeys(statuses, (400, 400))
    assert factory.engine(0).received == []
