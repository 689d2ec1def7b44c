"""Load balancer: least outstanding requests, with a bounded first-in, first-out queue."""

import asyncio
import itertools
from collections import deque

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
        self._slots = slots
        self._queue_size = queue_size
        self._engines: list[Engine] = []
        self._queue: deque[asyncio.Future[Engine]] = deque()
        self._uses = itertools.count(1)
        self._in_flight = 0
        self._idle = asyncio.Event()

    @property
    def queued(self) -> int:
        return len(self._queue)

    def add(self, engine: Engine) -> None:
        engine.on_available = self._dispatch
        self._engines.append(engine)
        self._dispatch()

    def remove(self, engine: Engine) -> None:
        if engine in self._engines:
            self._engines.remove(engine)

    async def acquire(self) -> Engine:
        """Wait for a slot on an engine; the caller returns it with :meth:`release`.

        Raises:
            RequestError: 429 if the queue is full, 503 during shutdown.
        """
        if self.closed:
            raise stopping()
        if engine := self._choose():
            return self._grant(engine)
        if len(self._queue) >= self._queue_size:
            raise RequestError(
                429,
                f"the queue is full: {len(self._queue)} requests are waiting; retry later",
                code="queue_full",
                retry_after=_RETRY_AFTER,
            )
        slot: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()
        self._queue.append(slot)
        try:
            return await slot
        except asyncio.CancelledError:
            if slot in self._queue:
                self._queue.remove(slot)
            elif not slot.cancelled() and slot.exception() is None:
                self.release(slot.result())  # granted and cancelled at the same moment
            raise

    def release(self, engine: Engine) -> None:
        engine.in_flight -= 1
        self._in_flight -= 1
        self._dispatch()
        if not self._in_flight:
            self._idle.set()

    async def drain(self, grace: float) -> None:
        """Refuse new and waiting requests, and evict those in flight after ``grace`` seconds."""
        self.closed = True
        for slot in self._queue:
            if not slot.done():
                slot.set_exception(stopping())
        self._queue.clear()
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

    def _dispatch(self) -> None:
        """Grant free slots to waiting requests."""
        while self._queue and (engine := self._choose()):
            slot = self._queue.popleft()
            if not slot.done():  # the client of a cancelled one has left
                slot.set_result(self._grant(engine))

    def _grant(self, engine: Engine) -> Engine:
        engine.last_used = next(self._uses)
        engine.in_flight += 1
        self._in_flight += 1
        return engine

    def _choose(self) -> Engine | None:
        free = [e for e in self._engines if not e.suspect and e.in_flight < self._slots]
        return min(free, key=_load_order, default=None)


def stopping() -> RequestError:
    message = "the generator is shutting down"
    return RequestError(503, message, code="stopping", retry_after=_RETRY_AFTER)


def _load_order(engine: Engine) -> tuple[int, int]:
    return engine.in_flight, engine.last_used
