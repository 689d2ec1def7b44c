"""Raw clients of an HTTP server, for what no HTTP library would send."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge

from shared.service.access import Access
from shared.service.server import Readiness, add_operations, listening, make_application

JSON = "Content-Type: application/json"


class Raw:
    """A connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def status(self) -> int:
        """The status of the next response; 0 if the connection is closed instead."""
        head, _ = await self.response()
        return int(head.split()[1]) if head else 0

    async def response(self) -> tuple[str, bytes]:
        """Header and body of the next response; empty if the connection is closed instead."""
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, ConnectionError):
            return "", b""
        lines = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        return head, await self.reader.readexactly(int(lines.get("content-length", 0)))

    async def closed(self) -> bool:
        """Wait until the server has closed the connection."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def connection(port: int) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(20):
            yield Raw(reader, writer)
    finally:
        writer.close()


async def ask(port: int, request: bytes) -> tuple[str, bytes]:
    """Send bytes over a connection of their own; returns header and body of the response."""
    async with connection(port) as raw:
        raw.send(request)
        return await raw.response()


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


def application(access: Access, change: Callable[[web.Application], None]) -> web.Application:
    async def echo(asked: web.Request) -> web.Response:
        return web.json_response({"bytes": len(await asked.read())})

    async def broken(_request: web.Request) -> web.Response:
        raise KeyError("a bug")

    registry = CollectorRegistry()
    Gauge("jobs", "Jobs.", registry=registry).set(3)
    app = make_application(access, client_max_size=1 << 24)
    app.router.add_post("/echo", echo)
    app.router.add_get("/broken", broken)
    add_operations(app, Readiness(details=lambda: {"queued": 0}), registry)
    change(app)
    return app


@asynccontextmanager
async def server(
    access: Access | None = None,
    *,
    change: Callable[[web.Application], None] = lambda _app: None,
) -> AsyncIterator[int]:
    """A small service; yields its port."""
    app = application(access or Access(), change)
    async with listening(app, "127.0.0.1", 0, 1.0) as port:
        yield port
