"""Raw clients of an HTTP server, for what no HTTP library would send."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge

from shared.service.access import Access
from shared.service.server import Readiness, add_operations, listening, make_application

JSON = "Content-Type: application/json"


async def ask(port: int, request: bytes) -> tuple[str, bytes]:
    """Send bytes over a connection; returns header and body of the response.

    Both are empty if the connection is closed instead.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(20):
            writer.write(request)
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            except (asyncio.IncompleteReadError, ConnectionError):
                return "", b""
            lines = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            return head, await reader.readexactly(int(lines.get("content-length", 0)))
    finally:
        writer.close()


async def status_of(port: int, request: bytes) -> int:
    head, _ = await ask(port, request)
    return int(head.split()[1]) if head else 0


def request(
    *headers: str, target: str = "/healthz", method: str = "GET", version: str = "1.1"
) -> bytes:
    """The header of a request; ``Host`` is among ``headers`` where it should be sent."""
    lines = [f"{method} {target} HTTP/{version}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def post(*headers: str, body: bytes = b"{}", target: str = "/echo") -> bytes:
    length = f"Content-Length: {len(body)}"
    return request("Host: localhost", length, *headers, method="POST", target=target) + body


@asynccontextmanager
async def server(
    access: Access | None = None,
    *,
    change: Callable[[web.Application], None] = lambda _app: None,
) -> AsyncIterator[int]:
    """A small service; yields its port."""

    async def echo(asked: web.Request) -> web.Response:
        return web.json_response({"bytes": len(await asked.read())})

    registry = CollectorRegistry()
    Gauge("jobs", "Jobs.", registry=registry).set(3)
    app = make_application(access or Access())
    app.router.add_post("/echo", echo)
    add_operations(app, Readiness(details=lambda: {"queued": 0}), registry)
    change(app)
    async with listening(app, "127.0.0.1", 0, 1.0) as port:
        yield port
