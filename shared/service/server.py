"""HTTP server of a service: health checks, operations endpoints, JSON errors, graceful shutdown."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Self
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from shared.errors import ServiceError
from shared.redaction import redact
from shared.service.access import COOKIE, OPEN_PATHS, Access, BearerToken
from shared.service.logs import get_logger
from shared.service.processes import announce_port
from shared.service.settings import ServiceSettings, load_settings

log = get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
# Makes an error response from status, message and headers, in the format of the service's API.
ErrorFormat = Callable[[int, str, Mapping[str, str]], web.StreamResponse]
# Returns the reason why the service cannot work, None if it can.
Check = Callable[[], str | None]

# Longer than that of clients and usual proxies, which could send a request while it is closed.
_KEEPALIVE = 75.0
_BACKLOG = 4096  # connections that the kernel keeps for a busy process, up to its own limit
_RETRY_AFTER = "2"  # seconds, while a service waits for a dependency
_ACCESS = web.AppKey("access", Access)
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="plumbline"'}
OTHER = "other"


# aiohttp reports errors of handlers, but no malformed requests.
logging.getLogger("aiohttp.server").addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
)


# Errors, and requests that are refused by their header alone, before their body is read


def json_error(
    status: int, message: object, headers: Mapping[str, str] | None = None, *, field: str = "error"
) -> web.Response:
    """Error response ``{"error": message}``; ``field`` renames the key for a foreign API."""
    return web.json_response({field: message}, status=status, headers=headers)


def guard(access: Access, errors: ErrorFormat) -> Middleware:
    """Middleware that applies the access rules, and has the errors in the service's format.

    Those are aiohttp's own (404, 405, 413 …); one that already has a JSON body passes through.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        host, token = request.headers.get("Host", ""), access.token
        if not access.hosts.admits(host):
            message = (
                f"the host name {host[:80]!r} is not one of this service's; if it is meant to be, "
                "add it to PLUMBLINE_ALLOWED_HOSTS"
            )
            return errors(HTTPStatus.MISDIRECTED_REQUEST, message, {})
        if request.method not in _SAFE and not _same_host(request.headers.get("Origin"), host):
            message = "requests from pages of other sites are refused"
            return errors(HTTPStatus.FORBIDDEN, message, {})
        if access.page and token and request.path == "/" and "token" in request.query:
            if token.matches(request.query["token"]):
                return _login(request, token)
            message = "the token in the address is wrong"
            return errors(HTTPStatus.UNAUTHORIZED, message, _CHALLENGE)
        if request.path not in OPEN_PATHS | access.without_token and not access.admits(request):
            hint = ", or open /?token=… in a browser" if access.page else ""
            message = f"the token is missing or wrong; send it as 'Authorization: Bearer …'{hint}"
            return errors(HTTPStatus.UNAUTHORIZED, message, _CHALLENGE)
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400 or error.content_type == "application/json":
                raise
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            message = f"{error.reason}: {request.method} {request.path}"
            return errors(error.status, message, allow)

    return middleware


def _same_host(origin: str | None, host: str) -> bool:
    """Whether a page of this service sends the request; only browsers send ``Origin``."""
    try:
        return origin is None or urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False


def _login(request: web.Request, token: BearerToken) -> web.Response:
    """Exchange ``/?token=…`` for a cookie, and remove the token from the address."""
    # A relative address, because a proxy may serve the page below a prefix.
    rest = request.rel_url.without_query_params("token").raw_query_string
    headers = {"Location": f"./?{rest}" if rest else "./", "Referrer-Policy": "no-referrer"}
    response = web.Response(status=303, headers=headers)
    secure = request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    response.set_cookie(COOKIE, token.cookie, httponly=True, samesite="Strict", secure=secure)
    return response


# Serving


def make_application(access: Access, *, errors: ErrorFormat = json_error) -> web.Application:
    """Create the application of a service, which has the access rules before everything else.

    ``errors`` is the format of the responses to refused requests, and of aiohttp's own errors.
    """
    # Nothing is inflated: a small body must not become a large one.
    parser = {"auto_decompress": False}
    app = web.Application(middlewares=[guard(access, errors)], handler_args=parser)
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

    Handlers are cancelled when their client disconnects; at the end, requests in flight get
    ``shutdown_timeout`` seconds. ``listens`` is called with the port. Raises as :func:`listening`.
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
    app: web.Application, host: str, port: int, shutdown_timeout: float = 10.0
) -> AsyncIterator[int]:
    """Serve an application in the block, on a free port for port 0; yields the port.

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
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            bound = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ServiceError(
                f"cannot serve on {host}:{port}: {error.strerror or error}; "
                "choose another by HOST and PORT, or by --host and --port of plumb"
            ) from None
        await web.SockSite(runner, bound, backlog=_BACKLOG).start()
        yield int(bound.getsockname()[1])
    finally:
        await runner.cleanup()


# Health checks and metrics


class Readiness:
    """Readiness of a service; each change is one log line.

    ``details`` returns the fields of ``/readyz`` beside ``ready`` and ``reason``.
    """

    def __init__(self, *checks: Check, details: Callable[[], Mapping[str, object]] = dict) -> None:
        self.details = details
        self._checks = checks
        self._last: str | None = None

    def failure(self) -> str | None:
        """Run the checks, which may block; return the reason of the first one that fails."""
        reason = next((reason for check in self._checks if (reason := check())), None)
        reason = reason and redact(reason)
        last, self._last = self._last, reason
        if reason and reason != last:
            log.error("not ready", reason=reason)
        elif last and not reason:
            log.info("ready again")
        return reason


def add_operations(
    app: web.Application,
    readiness: Readiness,
    metrics: CollectorRegistry | Callable[[], Awaitable[bytes]] | None,
) -> None:
    """Add the operations endpoints ``/healthz``, ``/readyz`` and ``/metrics``.

    ``/healthz`` answers 200 while the process runs, ``/readyz`` while it can work, else 503 with
    the reason. Where a token is required, a client without it gets neither reason nor details. The
    checks run in a thread, the details are read on the event loop. ``metrics`` is a registry,
    collected in a thread, or returns Prometheus text.
    """
    access = app[_ACCESS]

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def readyz(request: web.Request) -> web.Response:
        failure = await asyncio.to_thread(readiness.failure)
        body: dict[str, object] = {"ready": failure is None}
        if access.admits(request):
            reason = {"reason": failure} if failure else {}
            body |= {**reason, **readiness.details()}
        return web.json_response(body, status=503 if failure else 200)

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

    Every other path answers 503 while the process is not ready, and 404 otherwise. ``settings``
    have hosts and token, by default the environment's hosts alone. ``port`` is the one in use.

    Raises:
        ConfigError: The environment is invalid.
    """

    port: int

    def __init__(
        self,
        host: str,
        port: int,
        readiness: Readiness,
        registry: CollectorRegistry | None = None,
        *,
        settings: ServiceSettings | None = None,
    ) -> None:
        settings = settings or load_settings(ServiceSettings)
        self._readiness = readiness
        app = make_application(Access(settings.hosts, settings.bearer))
        add_operations(app, readiness, registry)
        # Every method: a client of a service that starts takes a 405 for a final answer.
        app.router.add_route("*", "/{path:.*}", self._other)
        self._listening = listening(app, host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        """Listen; raises :class:`ServiceError` if the address cannot be bound."""
        self._thread.start()
        entered = asyncio.run_coroutine_threadsafe(self._listening.__aenter__(), self._loop)
        self.port = entered.result()
        return self

    def __exit__(self, *_error: object) -> None:
        left = self._listening.__aexit__(None, None, None)
        asyncio.run_coroutine_threadsafe(left, self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _other(self, _request: web.Request) -> web.Response:
        if reason := await asyncio.to_thread(self._readiness.failure):
            return json_error(503, reason, headers={"Retry-After": _RETRY_AFTER})
        return json_error(404, "not found")


class LabelValues:
    """Values of a metric's label that others choose: the first ``limit``, every other is OTHER."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._admitted: set[str] = set()

    def admit(self, value: str) -> str:
        """The label of a value."""
        if value not in self._admitted and len(self._admitted) >= self._limit:
            return OTHER
        if value != OTHER:
            self._admitted.add(value)
        return value
