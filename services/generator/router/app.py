"""HTTP server of the router: OpenAI's API and the operations endpoints."""

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial

from aiohttp import web

from services.generator.protocol import (
    WITHOUT_TOKEN,
    RequestError,
    as_request_error,
    refused,
    unknown_model,
)
from services.generator.router.balancer import Balancer
from services.generator.router.connections import Connections
from services.generator.router.draining import DrainOnSignal, drain
from services.generator.router.engine_metrics import scrape
from services.generator.router.forwarder import Forwarder, RetryPolicy
from services.generator.router.health import HealthCheck, ProbeSettings
from services.generator.router.metrics import RouterMetrics, StateGauges
from services.generator.router.replica import ReplicaFactory, ReplicaStatus
from services.generator.router.requests import (
    RoutedRequest,
    parse_routed_request,
    request_id,
)
from services.generator.router.supervisor import ReplicaPool, SupervisorContext
from services.generator.settings import GeneratorSettings
from shared.service.access import Access
from shared.service.bodies import BodyTooLargeError, read_body
from shared.service.server import Readiness, add_operations, make_application, serve

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Info = Callable[[], Mapping[str, object]]
_MAX_OPEN_FILES = 65536


def build_app(
    settings: GeneratorSettings,
    factory: ReplicaFactory,
    n_replicas: int,
    *,
    info: Info = dict,
    failed: asyncio.Event | None = None,
) -> web.Application:
    """Build the application; the replicas start and stop with it.

    Args:
        settings: ``model`` is the served name of the model; the default is the engines' name.
        factory: Starts the replicas.
        n_replicas: Number of replicas.
        info: Returns what ``/info`` reports about the engines.
        failed: Set when no replica could be started or none is left; see :func:`serve_router`.
    """
    components = make_components(settings, factory, n_replicas, failed or asyncio.Event())
    return RouterServer(settings, components, info).application()


async def serve_router(
    settings: GeneratorSettings, factory: ReplicaFactory, n_replicas: int, info: Info = dict
) -> None:
    """Start replicas and serve them until SIGTERM or SIGINT, or until no replica is left.

    The port is bound at once; ``/readyz`` reports when the first replica is ready, and requests
    wait for it. On SIGTERM and SIGINT new requests are refused, those in flight get up to
    ``router_grace`` seconds, then all replicas are stopped.

    Raises:
        ServiceError: The address cannot be bound, no replica could be started, or every replica
            has exhausted its restarts.
    """
    _raise_file_limit()
    stop = asyncio.Event()
    components = make_components(settings, factory, n_replicas, failed=stop)
    app = RouterServer(settings, components, info).application()
    app.on_startup.append(DrainOnSignal(components.balancer, settings.router_grace, stop).install)
    await serve(app, settings, stop=stop)
    if components.pool.error is not None:
        raise components.pool.error


def _raise_file_limit() -> None:
    """Raise the soft limit of open files, often 1,024; a request in flight takes two sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@dataclass(frozen=True, slots=True)
class RouterComponents:
    connections: Connections
    balancer: Balancer
    metrics: RouterMetrics
    forwarder: Forwarder
    pool: ReplicaPool


def make_components(
    settings: GeneratorSettings, factory: ReplicaFactory, n_replicas: int, failed: asyncio.Event
) -> RouterComponents:
    connections = Connections(
        connect_timeout=settings.router_connect_timeout,
        progress_timeout=settings.router_progress_timeout,
    )
    balancer = Balancer(slots=settings.router_max_in_flight, queue_size=settings.router_queue_size)
    gauges = StateGauges(lambda: balancer.queued)
    metrics = RouterMetrics(gauges)
    probes = ProbeSettings(
        interval=settings.router_probe_interval,
        timeout=settings.router_probe_timeout,
        failures=settings.router_probe_failures,
    )
    health = HealthCheck(connections, probes)
    context = SupervisorContext(settings, factory, balancer, health, metrics)
    pool = ReplicaPool(n_replicas, context, failed)
    gauges.replicas = pool.status
    policy = RetryPolicy(settings.router_deadline, settings.router_max_attempts)
    forwarder = Forwarder(balancer, connections, metrics, policy)
    return RouterComponents(connections, balancer, metrics, forwarder, pool)


class RouterServer:
    def __init__(
        self, settings: GeneratorSettings, components: RouterComponents, info: Info
    ) -> None:
        self._settings = settings
        self._components = components
        self._info = info
        self._started = int(time.time())

    def application(self) -> web.Application:
        app = make_application(
            Access(self._settings.hosts, self._settings.bearer, WITHOUT_TOKEN),
            middlewares=[_errors_as_json],
            errors=refused,
        )
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/info", self._show_info)
        app.router.add_get("/health", self._health)
        readiness = Readiness(self._not_ready, details=self._status)
        add_operations(app, readiness, self._metrics)
        app.cleanup_ctx.append(self._running)
        app.on_shutdown.append(self._drain)
        return app

    async def _running(self, _app: web.Application) -> AsyncIterator[None]:
        self._components.connections.open()
        self._components.pool.start()
        yield
        await self._components.pool.close()
        await self._components.connections.close()

    async def _drain(self, _app: web.Application) -> None:
        await drain(self._components.balancer, self._settings.router_grace)

    # OpenAI's API

    async def _complete(self, request: web.Request) -> web.Response:
        began = time.monotonic()
        name, outcome = request_id(request.headers), "cancelled"
        try:
            routed = await read_body(
                request,
                partial(parse_routed_request, request.path),
                limit=self._settings.router_max_body,
                setting="PLUMBLINE_GENERATOR_ROUTER_MAX_BODY",
            )
            self._check_model(routed)
            response = await self._components.forwarder.forward(request, routed, name)
            outcome = "answered" if response.status == 200 else f"http_{response.status}"
        except (RequestError, BodyTooLargeError) as error:
            refusal = as_request_error(error)
            outcome, response = f"http_{refusal.status}", refusal.response()
        finally:
            self._components.metrics.requests.labels(outcome).inc()
        if outcome == "answered":
            self._components.metrics.duration.observe(time.monotonic() - began)
        response.headers["X-Request-Id"] = name
        if self._components.balancer.closed:
            response.force_close()  # so that the client reconnects to another server
        return response

    def _check_model(self, routed: RoutedRequest) -> None:
        served = self._model
        if routed.model is not None and served and routed.model != served:
            raise unknown_model(routed.model)

    @property
    def _model(self) -> str:
        """The model's name for clients; empty until an engine has reported it."""
        if "model" in self._settings.model_fields_set:
            return self._settings.model
        names = (engine.model for engine in self._components.pool.engines)
        return next((name for name in names if name), "")

    async def _models(self, _request: web.Request) -> web.Response:
        if not self._model:
            raise self._components.balancer.refusal()
        model = {
            "id": self._model,
            "object": "model",
            "created": self._started,
            "owned_by": "plumbline",
        }
        return web.json_response({"object": "list", "data": [model]})

    # Operations endpoints

    def _not_ready(self) -> str | None:
        if self._components.balancer.closed:
            return "the generator is shutting down"
        return None if self._components.pool.ready else "no replica is ready"

    async def _health(self, _request: web.Request) -> web.Response:
        """``/health`` compatible with vLLM: an empty body, 200 or 503."""
        return web.Response(status=503 if self._not_ready() else 200)

    def _status(self) -> dict[str, object]:
        """Details for ``/readyz``."""
        return {
            "model": self._model,
            "queued": self._components.balancer.queued,
            "stopping": self._components.balancer.closed,
            "replicas": [_replica(status) for status in self._components.pool.status()],
        }

    async def _show_info(self, _request: web.Request) -> web.Response:
        return web.json_response({"backend": self._settings.backend, **self._info()})

    async def _metrics(self) -> bytes:
        urls = {engine.rank: engine.url for engine in self._components.pool.engines}
        timeout = self._settings.router_scrape_timeout
        engines = await scrape(self._components.connections, urls, timeout)
        return self._components.metrics.text() + engines


def _replica(status: ReplicaStatus) -> dict[str, object]:
    fields = asdict(status)
    engine = fields.pop("engine") or {}
    return {**fields, **engine}


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestError as error:
        return error.response()
    except web.HTTPException as error:
        if error.status < 400:
            raise
        message = f"{request.method} {request.path}: {error.reason}"
        response = RequestError(error.status, message).response()
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
