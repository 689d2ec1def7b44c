"""HTTP server of a service: health checks, operations endpoints, JSON errors, graceful shutdown.

Every service answers ``/healthz`` with 200 while its process runs, and ``/readyz`` with 200 while
it can work, else with 503 and the reason.
"""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Self

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from shared.errors import ServiceError
from shared.redaction import redact
from shared.service.access import Access, ErrorFormat, guard
from shared.service.logs import get_logger
from shared.service.processes import announce_port
from shared.service.settings import ServiceSettings, load_settings

log = get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
# Returns the reason why the service cannot work, None if it can.
Check = Callable[[], str | None]

# Longer than that of clients and usual proxies, which otherwise would send a request while the
# connection is being closed.
_KEEPALIVE = 75.0
# Connections that the kernel keeps for a process that is busy; it takes no more than its own limit.
_BACKLOG = 4096
# Seconds after which a request may be tried again while a service waits for a dependency.
_RETRY_AFTER = "2"
_ACCESS = web.AppKey("access", Access)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether aiohttp reports an error of a handler, not a malformed request."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


logging.getLogger("aiohttp.server").addFilter(_is_ours)


# Errors


def json_error(
    status: int,
    message: object,
    *,
    field: str = "error",
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Error response ``{"error": message}``; ``field`` renames the key for a foreign API."""
    return web.json_response({field: message}, status=status, headers=headers)


def _json_format(status: int, message: str, headers: Mapping[str, str]) -> web.StreamResponse:
    return json_error(status, message, headers=headers)


def _json_http_errors(errors: ErrorFormat) -> Middleware:
    """Middleware that answers aiohttp's own errors (404, 405, 413 …) in the service's format.

    An error that already has a JSON body passes through.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400 or error.content_type == "application/json":
                raise
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            message = f"{error.reason}: {request.method} {request.path}"
            return errors(error.status, message, allow)

    return middleware


# Serving


def make_application(
    access: Access, *, errors: ErrorFormat = _json_format, client_max_size: int = 1024**2
) -> web.Application:
    """Create the application of a service, which has the access rules before everything else.

    ``errors`` is the format of the responses to refused requests, and of aiohttp's own errors.
    """
    app = web.Application(
        client_max_size=client_max_size,
        middlewares=[guard(access, errors), _json_http_errors(errors)],
        # Nothing is inflated: a small body must not become a large one.
        handler_args={"auto_decompress": False},
    )
    app[_ACCESS] = access
    return app


async def serve(
    app: web.Application,
    settings: ServiceSettings,
    *,
    stop: asyncio.Event | None = None,
    shutdown_timeout: float = 10.0,
    listens: Callable[[int], object] | None = None,
) -> None:
    """Serve ``app`` until SIGTERM or SIGINT arrives or ``stop`` is set, then shut down gracefully.

    Handlers are cancelled when their client disconnects. The port in use is logged and
    announced to the parent process (:func:`shared.service.processes.announce_port`).

    Args:
        shutdown_timeout: Seconds that requests in flight get to finish.
        listens: Called with the port as soon as requests are answered.

    Raises:
        ServiceError: The address cannot be bound.
    """
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    async with listening(app, settings.host, settings.port, shutdown_timeout) as port:
        announce_port(port)
        log.info("listening", host=settings.host, port=port)
        if listens is not None:
            listens(port)
        await stop.wait()
        log.info("stopping")


@asynccontextmanager
async def listening(
    app: web.Application,
    host: str,
    port: int,
    shutdown_timeout: float = 10.0,
    *,
    bound: socket.socket | None = None,
) -> AsyncIterator[int]:
    """Serve an application in the block, on a free port for port 0; yields the port.

    ``bound`` is a socket that is bound already, instead of ``host`` and ``port``.

    Raises:
        ServiceError: The address cannot be bound.
    """
    if _ACCESS not in app:
        raise RuntimeError("the application has no access rules: create it with make_application")
    runner = web.AppRunner(
        app,
        handler_cancellation=True,
        shutdown_timeout=shutdown_timeout,
        access_log=None,
        keepalive_timeout=_KEEPALIVE,
    )
    await runner.setup()
    try:
        bound = bound or _bind(host, port)
        await web.SockSite(runner, bound, backlog=_BACKLOG).start()
        yield _port(bound)
    finally:
        await runner.cleanup()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ServiceError(
            f"cannot serve on {host}:{port}: {error.strerror or error}; set HOST and PORT"
        ) from None


def _port(bound: socket.socket) -> int:
    return int(bound.getsockname()[1])


# Health checks and metrics


class Readiness:
    """Readiness of a service; each change is one log line. Thread-safe.

    Attributes:
        details: Further fields of ``/readyz``, in addition to ``ready`` and ``reason``.
    """

    def __init__(self, *checks: Check, details: Callable[[], Mapping[str, object]] = dict) -> None:
        self.details = details
        self._checks = checks
        self._lock = threading.Lock()
        self._last: str | None = None

    def failure(self) -> str | None:
        """Run the checks, which may block; return the reason of the first one that fails."""
        reason = next((reason for check in self._checks if (reason := check())), None)
        reason = reason and redact(reason)
        with self._lock:
            if reason and reason != self._last:
                log.error("not ready", reason=reason)
            elif self._last and not reason:
                log.info("ready again")
            self._last = reason
        return reason

    def answer(self, failure: str | None) -> tuple[int, dict[str, object]]:
        """Status and body of ``/readyz`` after :meth:`failure`."""
        if failure:
            return 503, {"ready": False, "reason": failure, **self.details()}
        return 200, {"ready": True, **self.details()}


def add_operations(
    app: web.Application,
    readiness: Readiness,
    metrics: CollectorRegistry | Callable[[], Awaitable[bytes]] | None,
) -> None:
    """Add the operations endpoints ``/healthz``, ``/readyz`` and ``/metrics``.

    Where a token is required, ``/readyz`` tells a client without it no more than whether the
    service is ready. The readiness checks run in a thread, their details are read on the event
    loop. ``metrics`` is a registry, collected in a thread, or returns Prometheus text.
    """
    access = app[_ACCESS]

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def readyz(request: web.Request) -> web.Response:
        status, body = readiness.answer(await asyncio.to_thread(readiness.failure))
        if not access.admits(request):
            body = {"ready": body["ready"]}
        return web.json_response(body, status=status)

    async def expose(_request: web.Request) -> web.Response:
        if callable(metrics):
            text = await metrics()
        else:
            assert metrics is not None
            text = await asyncio.to_thread(generate_latest, metrics)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    if metrics is not None:
        app.router.add_get("/metrics", expose)


class HealthServer:
    """Operations endpoints in a thread with an event loop, for a process that has none there.

    Every other path answers 503 while the process is not ready, and 404 otherwise.

    Args:
        settings: Allowed hosts and token; by default those of the environment, without a token.
        announce: Announce the port to the parent process; not for the time before a service starts.

    Raises:
        ServiceError: The address cannot be bound.
        ConfigError: The environment is invalid.
    """

    def __init__(
        self,
        host: str,
        port: int,
        readiness: Readiness,
        registry: CollectorRegistry | None = None,
        *,
        settings: ServiceSettings | None = None,
        announce: bool = True,
    ) -> None:
        settings = settings or load_settings(ServiceSettings)
        self._access = Access(settings.hosts, settings.bearer)
        self._readiness = readiness
        self._registry = registry
        self._announce = announce
        self._socket = _bind(host, port)
        self.port = _port(self._socket)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if self._announce:
            announce_port(self.port)
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        app = make_application(self._access)
        add_operations(app, self._readiness, self._registry)
        # Every method: a client of a service that starts takes a 405 for a final answer.
        app.router.add_route("*", "/{path:.*}", self._other)
        async with listening(app, "", self.port, bound=self._socket):
            await self._stop.wait()

    async def _other(self, _request: web.Request) -> web.Response:
        if reason := await asyncio.to_thread(self._readiness.failure):
            return json_error(503, reason, headers={"Retry-After": _RETRY_AFTER})
        return json_error(404, "not found")
