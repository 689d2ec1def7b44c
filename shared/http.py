"""The life of a service's HTTP server: bind, say where, serve, stop cleanly."""

import asyncio
import os
import signal
from pathlib import Path

from aiohttp import web

from shared.files import write_text
from shared.logs import get_logger

log = get_logger(__name__)


async def serve(
    app: web.Application,
    *,
    host: str,
    port: int,
    stop: asyncio.Event | None = None,
    shutdown_timeout: float = 10.0,
) -> None:
    """Serve ``app`` until SIGTERM or SIGINT arrives or ``stop`` is set, then stop cleanly.

    Handlers are cancelled when their client goes away. ``port`` 0 takes a free one; the port in
    use is logged and, where the environment names a ``PLUMBLINE_PORT_FILE``, written there.

    Args:
        app: The application.
        host: Address to bind.
        port: Port to bind, 0 for a free one.
        stop: Set from outside to end the server.
        shutdown_timeout: Seconds that requests in flight are given to finish.

    Raises:
        OSError: The address cannot be bound.
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
        await site.start()
        bound = int(runner.addresses[0][1])
        if port_file := os.environ.get("PLUMBLINE_PORT_FILE"):
            write_text(Path(port_file), f"{bound}\n")
        log.info("listening", host=host, port=bound)
        await stop.wait()
        log.info("stopping")
    finally:
        await runner.cleanup()
