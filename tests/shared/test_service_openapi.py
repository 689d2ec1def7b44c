"""Each service serves what it describes, and describes what it serves."""

from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from pydantic import BaseModel
from redis import Redis

from services.aggregator.app import STATIC, make_app
from services.aggregator.ingest import Ingester
from services.sandbox.app import create_app
from services.sandbox.settings import SandboxSettings
from shared.service.openapi import OPERATIONS, Failure, Route, document

_PAGE = {"/", *(f"/static/{path.name}" for path in STATIC.iterdir())}


def served(app: web.Application) -> set[tuple[str, str]]:
    """Method and path of every route but the page's; HEAD only where it is no part of a GET."""
    found = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.resource.canonical not in _PAGE
    }
    return {(m, p) for m, p in found if m != "HEAD" or ("GET", p) not in found}


def described(description: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {
        (method.upper(), path)
        for path, operations in description["paths"].items()
        for method in operations
    }


@pytest.mark.parametrize("name", ["sandbox", "aggregator"])
async def test_every_route_is_described_and_every_description_is_a_route(
    name: str, redis: Redis
) -> None:
    sandbox = name == "sandbox"
    app = create_app(SandboxSettings()) if sandbox else make_app(redis, Ingester(redis))
    path = "/api/openapi.json" if name == "aggregator" else "/openapi.json"
    async with TestClient(TestServer(app)) as client, client.get(path) as answer:
        description = await answer.json()
    assert described(description) == served(app)
    operations = [one for routes in description["paths"].values() for one in routes.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))


class Given(BaseModel):
    number: int
    more: "list[Given]" = []


def test_a_request_and_a_response_of_one_model_have_their_own_schemas() -> None:
    route = Route("/a/{id}", "a", "A", Given, method="post", body=Given, integers=("id",))
    made: Any = document("T", [route, *OPERATIONS], Failure)
    operation = made["paths"]["/a/{id}"]["post"]
    asked = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    answered = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    schemas = made["components"]["schemas"]
    assert schemas[asked.rpartition("/")[2]]["required"] == ["number"]
    assert schemas[answered.rpartition("/")[2]]["properties"]["number"] == {
        "title": "Number",
        "type": "integer",
    }
    assert operation["parameters"][0]["schema"] == {"type": "integer"}
    assert operation["responses"]["default"]["content"]
    ready = made["paths"]["/readyz"]["get"]["responses"]
    assert ready["503"]["content"]["application/json"]["schema"]["$ref"].endswith("/Ready")
    assert ready["default"]["content"]["application/json"]["schema"]["$ref"].endswith("/Failure")


def test_a_response_without_a_body_has_no_content() -> None:
    routes = [Route("/a", "a", "A", method="head"), Route("/b", "b", "B", media="")]
    made: Any = document("T", routes, Failure)
    for path, method in (("/a", "head"), ("/b", "get")):
        responses = made["paths"][path][method]["responses"]
        assert all("content" not in response for response in responses.values())
