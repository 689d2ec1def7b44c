"""Requests that are refused as a whole, before anything is judged."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis import Redis

from services.reward.app import make_app
from services.reward.problems import ProblemStore
from shared.service.access import Access
from tests.conftest import RedisServer
from tests.reward.servers import DEMO, Served, demo_completions, served
from tests.shared.test_service_openapi import described
from tests.shared.test_service_openapi import served as routes_of

QUEUE = "rq:queue:reward"
RIGHT = demo_completions()[0]
NAMED = {"dataset": RIGHT["dataset"], "problem_id": RIGHT["problem_id"], "completion": "x"}


@pytest.fixture
async def service(redis: Redis, redis_server: RedisServer) -> AsyncIterator[Served]:
    async with served(redis, redis_server.url, max_pending=8) as running:
        yield running


async def test_one_wrong_item_refuses_the_batch(service: Served, redis: Redis) -> None:
    """The error names the item of a batch by its number, and what is wrong with it."""
    cases: list[tuple[dict[str, object], int, str]] = [
        ({"dataset": "no_such", "problem_id": "a", "completion": ""}, 404, "no_such"),
        (NAMED | {"problem_id": "no_such"}, 404, "'no_such'"),
        (NAMED | {"hash": "0" * 16}, 409, "changed"),
        ({"ground_truth": "plumbline:nonsense", "completion": ""}, 422, "reference"),
        ({"ground_truth": "{}", "completion": ""}, 422, "inputs/outputs"),
        ({"ground_truth": {"inputs": ["1"], "outputs": []}, "completion": ""}, 422, "1 inputs"),
        ({"ground_truth": [{"input": "1"}], "completion": ""}, 422, "its JSON, not a list"),
        ({"completion": ""}, 422, "ground_truth"),
        (NAMED | {"completion": 7}, 422, "completion"),
        (NAMED | {"answer": "x"}, 422, "answer"),
        (NAMED | {"completion": "ü" * 524_289}, 413, "1048576 bytes"),
        (NAMED | {"group": "x" * 501}, 422, "at most 500 characters"),
    ]
    failures = []
    for item, expected, named in cases:
        batch, body = await service.score(items=[NAMED, item])
        of_batch = str(body["error"])
        alone, body = await service.score(**item)
        of_item = str(body["error"])
        named_in_both = named in of_batch and "1" in of_batch and named in of_item
        if not (batch == alone == expected and named_in_both) or "items[" in of_item:
            failures.append((item, batch, of_batch, alone, of_item))
    assert failures == []
    assert redis.llen(QUEUE) == 0


async def test_an_evaluation_set_gives_no_reward_for_training(
    redis: Redis, redis_server: RedisServer
) -> None:
    async with served(redis, redis_server.url, allow_eval=False) as service:
        status, body = await service.score(**NAMED)
        assert status == 403 and "--role train" in body["error"]
        status, _ = await service.score(**NAMED, purpose="validation", deadline=0.1)
        assert status == 504
        inline = {"inputs": ["1\n"], "outputs": ["1\n"]}
        status, _ = await service.score(ground_truth=inline, completion="x", deadline=0.1)
        assert status == 504
        named = {"ground_truth": inline, "dataset": RIGHT["dataset"], "completion": "x"}
        status, body = await service.score(**named)  # an export of the set with inline tests
        assert status == 403 and "training on the test" in body["error"]
        status, _ = await service.score(**named, purpose="validation", deadline=0.1)
        assert status == 504


async def test_backpressure(service: Served, redis: Redis) -> None:
    items = [NAMED | {"completion": str(number)} for number in range(9)]
    status, body = await service.score(items=items)
    assert status == 413 and "MAX_PENDING" in body["error"]

    url = f"{service.url}/v1/score"
    body = {"items": items[:6], "deadline": 60}
    async with service.client.post(
        url, json=body, headers={"Accept": "application/x-ndjson"}
    ) as first:
        assert first.status == 200  # they wait
        async with service.client.post(url, json={"items": items[6:]}) as second:
            assert second.status == 429
            assert int(second.headers["Retry-After"]) >= 1


async def test_a_token_is_required(redis: Redis, redis_server: RedisServer) -> None:
    async with served(redis, redis_server.url, token="secret") as service:
        status, _ = await service.score(**NAMED)
        assert status == 401
        headers = {"Authorization": "Bearer secret"}
        url = f"{service.url}/v1/info"
        async with service.client.get(url, headers=headers) as response:
            assert response.status == 200
            assert "codecontests_valid" in (await response.json())["datasets"]


def test_data_that_differ_from_their_lock_are_refused(tmp_path: Path) -> None:
    name = "codecontests_valid.parquet"
    (tmp_path / name).write_bytes((DEMO / "data" / name).read_bytes())
    locks = list(DEMO.rglob("manifest.lock.json"))
    (tmp_path / "manifest.lock.json").write_bytes(locks[0].read_bytes())
    ProblemStore([str(tmp_path)]).close()
    with (tmp_path / name).open("ab") as file:
        file.write(b"x")
    with pytest.raises(Exception, match="SHA-256"):
        ProblemStore([str(tmp_path)])


async def test_every_route_is_described_and_no_other(service: Served, redis: Redis) -> None:
    async with service.client.get(f"{service.url}/openapi.json") as response:
        description = await response.json()
    assert described(description) == routes_of(make_app(service.service, redis, access=Access()))
