"""Load balancer: least outstanding requests, with a bounded first-in, first-out queue."""

import asyncio
import itertools

from services.generator.protocol import RequestError
from services.generator.router.replica import Engine

# Seconds.
_RETRY_AFTER = 5


class Balancer:
    """Assigns requests to the engine with the fewest in flight.

    While all slots are taken, requests wait in order of arrival.

    Args:
        slots: Requests in flight on one engine.
        queue_size: Limit of waiting requests.
    """

    def __init__(self, *, slots: int, queue_size: int) -> None:
        self.closed = False
        self.queued = 0
        self._slots = slots
        self._queue_size = queue_size
        self._engines: list[Engine] = []
        self._first = asyncio.Lock()  # held by the first in the queue
        self._changed = asyncio.Event()
        self._uses = itertools.count(1)
        self._in_flight = 0
        self._idle = asyncio.Event()

    def add(self, engine: Engine) -> None:
        engine.on_available = self._changed.set
        self._engines.append(engine)
        self._changed.set()

    def remove(self, engine: Engine) -> None:
        if engine in self._engines:
            self._engines.remove(engine)

    async def acquire(self) -> Engine:
        """Wait for a slot on an engine; the caller returns it with :meth:`release`.

        Raises:
            RequestError: 429 if the queue is full, 503 during shutdown.
        """
        if self.queued >= self._queue_size and (self.queued or not self._choose()):
            raise RequestError(
                429,
                f"the queue is full: {self.queued} requests are waiting; retry later",
                code="queue_full",
                retry_after=_RETRY_AFTER,
            )
        self.queued += 1
        try:
            async with self._first:
                while not self.closed:
                    if engine := self._choose():
                        engine.last_used = next(self._uses)
                        engine.in_flight += 1
                        self._in_flight += 1
                        return engine
                    self._changed.clear()
                    await self._changed.wait()
        finally:
            self.queued -= 1
        raise stopping()

    def release(self, engine: Engine) -> None:
        engine.in_flight -= 1
        self._in_flight -= 1
        self._changed.set()
        if not self._in_flight:
            self._idle.set()

    async def drain(self, grace: float) -> None:
        """Refuse new and waiting requests, and evict those in flight after ``grace`` seconds."""
        self.closed = True
        self._changed.set()
        try:
            async with asyncio.timeout(grace):
                await self.idle()
        except TimeoutError:
            for engine in self._engines:
                engine.evict()

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        while self._in_flight:
            self._idle.clear()
            await self._idle.wait()

    def _choose(self) -> Engine | None:
        free = [e for e in self._engines if not e.suspect and e.in_flight < self._slots]
        return min(free, key=_load_order, default=None)


def stopping() -> RequestError:
    message = "the generator is shutting down"
    return RequestError(503, message, code="stopping", retry_after=_RETRY_AFTER)


def _load_order(engine: Engine) -> tuple[int, int]:
    return engine.in_flight, engine.last_used
