"""HTTP server of a service: operations endpoints, JSON errors, binding, shutdown."""

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry, Gauge

from shared.errors import ServiceError
from shared.service.access import Access
from shared.service.server import (
    Readiness,
    add_operations,
    json_error,
    make_application,
    serve,
)
from shared.service.settings import ServiceSettings
from tests.waiting import eventually


async def test_operations_have_one_shape() -> None:
    failure: list[str] = ["no replica yet"]
    registry = CollectorRegistry()
    Gauge("jobs", "Jobs.", registry=registry).set(3)
    app = make_application(Access())
    readiness = Readiness(lambda: failure[0] if failure else None, details=lambda: {"queued": 0})
    add_operations(app, readiness, registry)
    async with TestClient(TestServer(app)) as client:
        async with client.get("/healthz") as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "alive"})
        async with client.get("/readyz") as answer:
            body = {"ready": False, "reason": "no replica yet", "queued": 0}
            assert (answer.status, await answer.json()) == (503, body)
        failure.clear()
        async with client.get("/readyz") as answer:
            assert (answer.status, await answer.json()) == (200, {"ready": True, "queued": 0})
        async with client.get("/metrics") as answer:
            assert "jobs 3.0" in await answer.text()
            assert answer.headers["Content-Type"].startswith("text/plain; version=")


@pytest.mark.parametrize("field", ["error", "detail"])
async def test_aiohttps_own_errors_are_json(field: str) -> None:
    async def invalid(_request: web.Request) -> web.Response:
        raise web.HTTPBadRequest(text='{"own": 1}', content_type="application/json")

    def errors(status: int, message: str, headers: Mapping[str, str]) -> web.Response:
        return json_error(status, message, field=field, headers=headers)

    app = make_application(Access(), errors=errors)
    app.router.add_get("/invalid", invalid)
    async with TestClient(TestServer(app)) as client:
        async with client.get("/nowhere") as answer:
            body = {field: "Not Found: GET /nowhere"}
            assert (answer.status, await answer.json()) == (404, body)
        async with client.post("/invalid") as answer:
            body = {field: "Method Not Allowed: POST /invalid"}
            assert (answer.status, await answer.json()) == (405, body)
            assert "GET" in answer.headers["Allow"]
        async with client.get("/invalid") as answer:
            assert (answer.status, await answer.json()) == (400, {"own": 1})


async def test_the_bound_port_is_written_and_stop_ends_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port_file = tmp_path / "port"
    monkeypatch.setenv("PLUMBLINE_PORT_FILE", str(port_file))
    app = make_application(Access())
    add_operations(app, Readiness(), CollectorRegistry())
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(app, ServiceSettings(), stop=stop))
    async with asyncio.timeout(60):
        await eventually(port_file.exists)
        url = f"http://127.0.0.1:{port_file.read_text().strip()}/healthz"
        async with ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200
        stop.set()
        await serving


async def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            ServiceError, match=f"cannot serve on 127.0.0.1:{port}: .*in use.*--port"
        ):
            await serve(make_application(Access()), ServiceSettings(port=port))


async def test_an_application_without_access_rules_is_not_served() -> None:
    with pytest.raises(RuntimeError, match="make_application"):
        await serve(web.Application(), ServiceSettings())
