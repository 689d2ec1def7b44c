"""The end of the service: nobody is let in any more, who is in may finish."""

import asyncio
import signal

from aiohttp import web

from services.generator.router.balancer import Balancer
from shared.service.logs import get_logger

log = get_logger(__name__)
_WHY = "the generator is being stopped"


async def drain(balancer: Balancer, grace: float) -> None:
    """Refuse new requests and give those in flight ``grace`` seconds to finish."""
    balancer.close()
    try:
        async with asyncio.timeout(grace):
            await balancer.idle()
    except TimeoutError:
        balancer.evict(_WHY)


class DrainOnSignal:
    """Lets SIGTERM and SIGINT drain, and set ``stop`` only then; a second one allows no grace.

    A server of aiohttp's that is being stopped refuses connections and leaves unanswered what
    still comes on those it has. Until all is drained, requests are to get an honest 503.
    """

    def __init__(self, balancer: Balancer, grace: float, stop: asyncio.Event) -> None:
        self._balancer = balancer
        self._grace = grace
        self._stop = stop
        self._draining: asyncio.Task[None] | None = None

    async def install(self, _app: web.Application) -> None:
        """Take the signals over from whoever had them before."""
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._begin)

    def _begin(self) -> None:
        if self._draining is not None:
            self._balancer.evict(_WHY)
            return
        log.info("draining", grace=self._grace)
        self._draining = asyncio.create_task(drain(self._balancer, self._grace))
        self._draining.add_done_callback(lambda _task: self._stop.set())
