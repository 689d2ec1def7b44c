"""HTTP server of the router: OpenAI's API and the operations endpoints."""

import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping

from aiohttp import web

from services.generator.protocol import (
    WITHOUT_TOKEN,
    RequestError,
    models_response,
    read_request,
    refused,
)
from services.generator.router.forwarder import Forwarder, open_session
from services.generator.router.metrics import scrape
from services.generator.router.replica import ReplicaFactory
from services.generator.router.supervisor import ReplicaPool
from services.generator.settings import GeneratorSettings
from shared.service.access import Access
from shared.service.processes import raise_file_limit
from shared.service.server import Readiness, add_operations, make_application, serve

Info = Callable[[], Mapping[str, object]]
# A request in flight takes two sockets.
_OPEN_FILES = 65536
_MAX_ID_LENGTH = 512


async def serve_router(
    settings: GeneratorSettings, factory: ReplicaFactory, n_replicas: int, info: Info = dict
) -> None:
    """Start replicas and serve them until SIGTERM or SIGINT, or until no replica is left.

    The port is bound at once; ``/readyz`` reports when the first replica is ready, and requests
    wait for it. On SIGTERM and SIGINT the port is closed, requests in flight get up to
    ``router_grace`` seconds, then all replicas are stopped.

    Raises:
        ServiceError: The address cannot be bound, no replica could be started, or every replica
            has exhausted its restarts.
    """
    raise_file_limit(_OPEN_FILES)
    router = Router(settings, factory, n_replicas, info)
    await serve(router.application(), settings, stop=router.pool.failed)
    if router.pool.error is not None:
        raise router.pool.error


class Router:
    """The router's parts, connected; the replicas start and stop with its application.

    Args:
        settings: ``model`` is the model's name for clients.
        factory: Starts the replicas.
        n_replicas: Number of replicas.
        info: Returns what ``/info`` reports about the engines.
    """

    def __init__(
        self,
        settings: GeneratorSettings,
        factory: ReplicaFactory,
        n_replicas: int,
        info: Info = dict,
    ) -> None:
        self._settings = settings
        self._info = info
        self._started = int(time.time())
        self.pool = ReplicaPool(settings, factory, n_replicas)
        self._balancer, self._metrics = self.pool.balancer, self.pool.metrics
        self._forwarder = Forwarder(self._balancer, self._metrics)

    def application(self) -> web.Application:
        app = make_application(
            Access(self._settings.hosts, self._settings.bearer, WITHOUT_TOKEN), errors=refused
        )
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/info", self._show_info)
        app.router.add_get("/health", self._health)
        readiness = Readiness(self._not_ready, details=self._status)
        add_operations(app, readiness, self._metrics_text)
        app.cleanup_ctx.append(self._running)
        app.on_shutdown.append(self._drain)
        return app

    async def _running(self, _app: web.Application) -> AsyncIterator[None]:
        async with open_session() as session:
            self._session = self._forwarder.session = self.pool.health.session = session
            self.pool.start()
            yield
            await self.pool.close()

    async def _drain(self, _app: web.Application) -> None:
        await self._balancer.drain(self._settings.router_grace)

    # OpenAI's API

    async def _complete(self, request: web.Request) -> web.Response:
        began = time.monotonic()
        name, outcome = request_id(request.headers), "cancelled"
        try:
            routed = await read_request(request, self._settings.model)
            response = await self._forwarder.forward(request, routed, name)
            outcome = "answered" if response.status == 200 else f"http_{response.status}"
        except RequestError as error:
            outcome, response = f"http_{error.status}", error.response()
        finally:
            self._metrics.requests.labels(outcome).inc()
        if outcome == "answered":
            self._metrics.duration.observe(time.monotonic() - began)
        response.headers["X-Request-Id"] = name
        return response

    async def _models(self, _request: web.Request) -> web.Response:
        return models_response(self._settings.model, self._started)

    # Operations endpoints

    def _not_ready(self) -> str | None:
        if self._balancer.closed:
            return "the generator is shutting down"
        return None if self.pool.ready else "no replica is ready"

    async def _health(self, _request: web.Request) -> web.Response:
        """``/health`` compatible with vLLM: an empty body, 200 or 503."""
        return web.Response(status=503 if self._not_ready() else 200)

    def _status(self) -> dict[str, object]:
        """Details for ``/readyz``."""
        return {
            "model": self._settings.model,
            "queued": self._balancer.queued,
            "replicas": self.pool.status(),
        }

    async def _show_info(self, _request: web.Request) -> web.Response:
        return web.json_response({"backend": self._settings.backend, **self._info()})

    async def _metrics_text(self) -> bytes:
        urls = {replica.rank: replica.url for replica in self.pool.replicas}
        return self._metrics.text() + await scrape(self._session, urls)


def request_id(headers: Mapping[str, str]) -> str:
    """Return the client's ``X-Request-Id`` if it is a valid header value, else a new id."""
    name = headers.get("X-Request-Id", "")
    usable = name.isascii() and name.isprintable() and 0 < len(name) <= _MAX_ID_LENGTH
    return name if usable else uuid.uuid4().hex
