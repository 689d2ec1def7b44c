"""Graceful shutdown: refuse new requests, drain the rest."""

import asyncio
import signal

from aiohttp import web

from services.generator.router.balancer import STOPPING, Balancer
from shared.service.logs import get_logger

log = get_logger(__name__)


async def drain(balancer: Balancer, grace: float) -> None:
    """Refuse new requests and give those in flight ``grace`` seconds to finish."""
    balancer.close()
    try:
        async with asyncio.timeout(grace):
            await balancer.idle()
    except TimeoutError:
        balancer.evict(STOPPING)


class DrainOnSignal:
    """Drains on SIGTERM and SIGINT, then sets ``stop``; a second signal skips the grace period.

    A stopping aiohttp server refuses connections, and does not answer requests on open ones. But
    requests must get 503 with ``Retry-After`` during the drain, so the server stops after it.
    """

    def __init__(self, balancer: Balancer, grace: float, stop: asyncio.Event) -> None:
        self._balancer = balancer
        self._grace = grace
        self._stop = stop
        self._draining: asyncio.Task[None] | None = None

    async def install(self, _app: web.Application) -> None:
        """Replace the signal handlers of the HTTP server."""
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._begin)

    def _begin(self) -> None:
        if self._draining is not None:
            self._balancer.evict(STOPPING)
            return
        log.info("draining", grace=self._grace)
        self._draining = asyncio.create_task(drain(self._balancer, self._grace))
        self._draining.add_done_callback(lambda _task: self._stop.set())
