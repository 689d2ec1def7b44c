from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient
from pydantic import TypeAdapter
from redis import Redis

from services.aggregator.api.routes import ROUTES
from shared.schemas import SampleId
from shared.service.openapi import Route
from tests.aggregator.runs import ask, begin, judge, served
from tests.shared.ledgers import problem


@pytest.fixture
async def client(redis: Redis) -> AsyncIterator[TestClient]:
    for run in ("run-1", "run-2"):
        judge(begin(redis, [problem("p1")], run), SampleId("d1", "p1"), judged_at=5.0)
    async with served(redis) as client:
        yield client


@pytest.mark.parametrize("route", [r for r in ROUTES if r.answer], ids=lambda r: r.name)
async def test_answers_are_as_described(client: TestClient, route: Route) -> None:
    """The schemas are made from the models, which forbid what they do not name."""
    values = {"run": "run-1", "dataset": "d1", "problem_id": "p1", "sample_index": 0}
    runs = "?runs=run-1,run-2"
    queries = {
        "compare_runs": runs,
        "list_flips": f"{runs}&dataset=d1&kind=all",
        "show_grid": f"{runs}&dataset=d1",
        "show_gate": "?baseline=run-1&run=run-1",
    }
    found = await ask(client, route.path.format(**values) + queries.get(route.name, ""))
    assert route.answer is not None
    adapter = TypeAdapter(route.answer)
    assert adapter.dump_python(adapter.validate_python(found), mode="json") == found
