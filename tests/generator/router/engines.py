"""Fake engines: real HTTP servers whose answers and failures a test chooses."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from services.generator.router.replica import NoPlacementError, Replica
from shared.errors import ServiceError

MODEL = "/models/engine"


@dataclass(frozen=True, slots=True)
class Received:
    path: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document

    @property
    def request_id(self) -> str:
        return self.headers["X-Request-Id"]


Behaviour = Callable[["FakeEngine", web.Request, Received], Awaitable[web.StreamResponse]]


class FakeEngine:
    """``behave`` answers requests, ``behave_to_probes`` those of the router itself."""

    def __init__(self, name: str, behave: Behaviour, metrics: str = "") -> None:
        self.name = name
        self.behave = behave
        self.behave_to_probes: Behaviour = answer
        self.metrics = metrics
        self.metrics_gate = asyncio.Event()
        self.metrics_gate.set()
        self.gate = asyncio.Event()
        self.received: list[Received] = []
        self.probes = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.cancelled = 0
        self.url = ""
        self._changed = asyncio.Condition()
        self._connections: set[asyncio.Transport] = set()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/v1/chat/completions", self._handle)
        app.router.add_post("/v1/completions", self._handle)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=4096)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def kill(self) -> None:
        """End at once: connections are reset, further ones refused."""
        if self._runner is None:
            return
        runner, self._runner = self._runner, None
        for site in list(runner.sites):
            await site.stop()
        for transport in list(self._connections):
            reset(transport)
        await runner.cleanup()

    async def until(self, condition: Callable[["FakeEngine"], bool]) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def has_received(self, count: int) -> None:
        await self.until(lambda engine: len(engine.received) >= count)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        received = Received(request.path, await request.read(), request.headers)
        assert request.transport is not None
        self._connections.add(request.transport)
        if received.request_id.startswith("probe-"):
            self.probes += 1
            await self._notify()
            return await self.behave_to_probes(self, request, received)
        self.received.append(received)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await self._notify()
        try:
            return await self.behave(self, request, received)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1
            await asyncio.shield(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL}]})

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response()  # well, whatever happens

    async def _metrics(self, _request: web.Request) -> web.Response:
        await self.metrics_gate.wait()
        return web.Response(text=self.metrics)


def reset(transport: Any) -> None:
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        # With no time to linger, closing sends RST instead of FIN.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


async def cut_off(request: web.Request) -> web.StreamResponse:
    """End the connection in the middle of a body."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = 1000
    await response.prepare(request)
    await response.write(b'{"choices": [')
    assert request.transport is not None
    request.transport.close()
    return response


# Behaviours


def body(received: Received, finish_reason: str = "stop", tokens: int = 2) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": "Hi there"}, "text": "Hi there"}
    return {
        "id": received.request_id,
        "choices": [{"index": 0, **choice, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens},
    }


async def answer(_e: FakeEngine, _q: web.Request, received: Received) -> web.StreamResponse:
    return web.json_response(body(received))


async def hang(*_: object) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def abort(_e: FakeEngine, _q: web.Request, received: Received) -> web.StreamResponse:
    return web.json_response(body(received, "abort", 0))


async def break_connection(_e: FakeEngine, request: web.Request, _: object) -> web.StreamResponse:
    reset(request.transport)
    return await hang()


async def wait_for_gate(e: FakeEngine, _q: web.Request, received: Received) -> web.StreamResponse:
    """Answers when the test says so."""
    await e.gate.wait()
    return web.json_response(body(received))


def with_status(status: int, text: str = '{"error": {"message": "no"}}') -> Behaviour:
    async def behave(*_: object) -> web.StreamResponse:
        return web.Response(status=status, text=text, content_type="application/json")

    return behave


# Replicas


class FakeReplica(Replica):
    def __init__(self, engine: FakeEngine) -> None:
        super().__init__(engine.name, engine.url)
        self.engine, self.stops, self.end = engine, 0, asyncio.Event()

    async def ended(self) -> str:
        await self.end.wait()
        return "its process has ended"

    async def stop(self) -> None:
        self.stops += 1
        await self.engine.kill()

    def describe(self) -> dict[str, object]:
        return {"gpus": 1, "generation": "of its own"}


@dataclass(slots=True)
class FakeFactory:
    """Starts engines that behave as ``behaviours`` says for (rank, generation), else ``behave``."""

    behave: Behaviour = answer
    behaviours: dict[tuple[int, int], Behaviour] = field(default_factory=dict)
    errors: dict[tuple[int, int], str] = field(default_factory=dict)
    full: int = 0
    """The number of generations from 1 that find no room."""
    gates: dict[tuple[int, int], asyncio.Event] = field(default_factory=dict)
    metrics: str = ""
    replicas: dict[tuple[int, int], FakeReplica] = field(default_factory=dict)
    asked: list[tuple[int, int]] = field(default_factory=list)

    async def start(self, rank: int, generation: int) -> FakeReplica:
        key = (rank, generation)
        self.asked.append(key)
        if gate := self.gates.get(key):
            await gate.wait()
        if error := self.errors.get(key):
            raise ServiceError(error)
        if 1 <= generation <= self.full:
            raise NoPlacementError("no placement within 1 s")
        engine = FakeEngine(
            f"replica-{rank}.{generation}", self.behaviours.get(key, self.behave), self.metrics
        )
        await engine.start()
        self.replicas[key] = FakeReplica(engine)
        return self.replicas[key]

    def engine(self, rank: int, generation: int = 0) -> FakeEngine:
        return self.replicas[rank, generation].engine

    @property
    def engines(self) -> list[FakeEngine]:
        return [replica.engine for replica in self.replicas.values()]
