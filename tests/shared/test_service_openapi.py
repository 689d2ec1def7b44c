"""Each service serves what it describes, and describes what it serves."""

from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from redis import Redis

from services.aggregator.app import STATIC, make_app
from services.aggregator.ingest import Ingester
from services.sandbox.app import create_app
from services.sandbox.settings import SandboxSettings

_OPERATIONS = {"/healthz", "/readyz", "/metrics", "/openapi.json"}
_PAGE = {"/", *(f"/static/{path.name}" for path in STATIC.iterdir())}


def served(app: web.Application) -> set[tuple[str, str]]:
    """Method and path of the API's routes; HEAD only where it is no part of a GET."""
    found = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.resource.canonical not in _PAGE | _OPERATIONS
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
    operations = [route for routes in description["paths"].values() for route in routes.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
