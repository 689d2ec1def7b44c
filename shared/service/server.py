"""HTTP server of an aiohttp service: graceful shutdown, operations endpoints, JSON errors."""

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from shared.service.access import Access, ErrorFormat, guard
from shared.service.health import ALIVE, BACKLOG, Readiness, bind_error
from shared.service.logs import get_logger
from shared.service.processes import announce_port
from shared.service.settings import ServiceSettings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


# Longer than that of clients and usual proxies, which otherwise would send a request while the
# connection is being closed.
_KEEPALIVE = 75.0
_ACCESS = web.AppKey("access", Access)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether aiohttp reports an error of a handler, not a malformed request."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


logging.getLogger("aiohttp.server").addFilter(_is_ours)


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


def make_application(
    access: Access,
    *,
    middlewares: Iterable[Middleware] = (),
    errors: ErrorFormat = _json_format,
    client_max_size: int = 1024**2,
) -> web.Application:
    """Create the application of a service, which has the access rules before everything else.

    Args:
        access: Access rules of the service.
        middlewares: Its own middlewares.
        errors: Format of the responses to refused requests.
        client_max_size: Largest request body in bytes.
    """
    app = web.Application(
        client_max_size=client_max_size,
        middlewares=[guard(access, errors), *middlewares],
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
        app: The application, of :func:`make_application`.
        settings: Address to bind.
        stop: Event that stops the server when it is set.
        shutdown_timeout: Seconds that requests in flight get to finish.
        listens: Called with the port as soon as requests are answered.

    Raises:
        ServiceError: The address cannot be bound.
    """
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    async with listening(app, settings.host, settings.port, shutdown_timeout) as bound:
        announce_port(bound)
        log.info("listening", host=settings.host, port=bound)
        if listens is not None:
            listens(bound)
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
    """Serve an application in the block; yields the port.

    Args:
        app: The application, of :func:`make_application`.
        host: Address to bind.
        port: Port to bind, 0 for a free one.
        shutdown_timeout: Seconds that requests in flight get to finish.
        bound: A socket that is bound already, instead of ``host`` and ``port``.

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
        site: web.BaseSite
        if bound is not None:
            site = web.SockSite(runner, bound, backlog=BACKLOG)
        else:
            site = web.TCPSite(runner, host, port, backlog=BACKLOG)
        try:
            await site.start()
        except OSError as error:
            raise bind_error(host, port, error) from None
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def add_operations(
    app: web.Application,
    readiness: Readiness,
    metrics: "CollectorRegistry | Callable[[], Awaitable[bytes]] | None",
    *,
    ready_paths: tuple[str, ...] = ("/readyz",),
) -> None:
    """Add the operations endpoints ``/healthz``, ``/readyz`` and ``/metrics``.

    Where a token is required, ``/readyz`` tells a client without it no more than whether the
    service is ready.

    Args:
        app: The application.
        readiness: Readiness checks, which run in a thread; the details are read on the event loop.
        metrics: A registry, collected in a thread, or a function that returns Prometheus text; None
            for a service without metrics.
        ready_paths: Paths that answer as ``/readyz`` does.
    """
    access = app[_ACCESS] if _ACCESS in app else Access()

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response(ALIVE)

    async def readyz(request: web.Request) -> web.Response:
        status, body = readiness.answer(await asyncio.to_thread(readiness.failure))
        if not access.admits(request):
            body = {"ready": body["ready"]}
        return web.json_response(body, status=status)

    async def expose(_request: web.Request) -> web.Response:
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        if callable(metrics):
            text = await metrics()
        else:
            assert metrics is not None
            text = await asyncio.to_thread(generate_latest, metrics)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app.router.add_get("/healthz", healthz)
    for path in ready_paths:
        app.router.add_get(path, readyz)
    if metrics is not None:
        app.router.add_get("/metrics", expose)


def _error_message(request: web.Request, error: web.HTTPException) -> str:
    return f"{error.reason}: {request.method} {request.path}"


def json_http_errors(
    *,
    field: str = "error",
    message: Callable[[web.Request, web.HTTPException], str] = _error_message,
) -> Middleware:
    """Middleware that answers aiohttp's own errors (404, 405, 413 …) as :func:`json_error`.

    An error that already has a JSON body passes through.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400 or error.content_type == "application/json":
                raise
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
            text = message(request, error)
            return json_error(error.status, text, field=field, headers=allow)

    return middleware
