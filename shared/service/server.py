"""HTTP server of an aiohttp service: graceful shutdown, operations endpoints, JSON errors."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from shared.service.health import ALIVE, Readiness, bind_error
from shared.service.logs import get_logger
from shared.service.processes import announce_port

log = get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve(
    app: web.Application,
    *,
    host: str,
    port: int,
    stop: asyncio.Event | None = None,
    shutdown_timeout: float = 10.0,
) -> None:
    """Serve ``app`` until SIGTERM or SIGINT arrives or ``stop`` is set, then shut down gracefully.

    Handlers are cancelled when their client disconnects. The port in use is logged and
    announced to the parent process (:func:`shared.service.processes.announce_port`).

    Args:
        app: The application.
        host: Address to bind.
        port: Port to bind, 0 for a free one.
        stop: Event that stops the server when it is set.
        shutdown_timeout: Seconds that requests in flight get to finish.

    Raises:
        ServiceError: The address cannot be bound.
    """
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=shutdown_timeout
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=4096)
        try:
            await site.start()
        except OSError as error:
            raise bind_error(host, port, error) from None
        bound = int(runner.addresses[0][1])
        announce_port(bound)
        log.info("listening", host=host, port=bound)
        await stop.wait()
        log.info("stopping")
    finally:
        await runner.cleanup()


def add_operations(
    app: web.Application,
    readiness: Readiness,
    metrics: CollectorRegistry | Callable[[], Awaitable[bytes]],
    *,
    ready_paths: tuple[str, ...] = ("/readyz",),
) -> None:
    """Add the operations endpoints ``/healthz``, ``/readyz`` and ``/metrics``.

    Args:
        app: The application.
        readiness: Readiness checks, which run in a thread; the details are read on the event loop.
        metrics: A registry, collected in a thread, or a function that returns Prometheus text.
        ready_paths: Paths that answer as ``/readyz`` does.
    """

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response(ALIVE)

    async def readyz(_request: web.Request) -> web.Response:
        status, body = readiness.answer(await asyncio.to_thread(readiness.failure))
        return web.json_response(body, status=status)

    async def expose(_request: web.Request) -> web.Response:
        if isinstance(metrics, CollectorRegistry):
            text = await asyncio.to_thread(generate_latest, metrics)
        else:
            text = await metrics()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app.router.add_get("/healthz", healthz)
    for path in ready_paths:
        app.router.add_get(path, readyz)
    app.router.add_get("/metrics", expose)


def json_error(
    status: int,
    message: object,
    *,
    field: str = "error",
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Error response ``{"error": message}``; ``field`` renames the key for a foreign API."""
    return web.json_response({field: message}, status=status, headers=headers)


def http_error_message(request: web.Request, error: web.HTTPException) -> str:
    return f"{error.reason}: {request.method} {request.path}"


def json_http_errors(
    *,
    field: str = "error",
    message: Callable[[web.Request, web.HTTPException], str] = http_error_message,
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
