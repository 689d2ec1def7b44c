"""Load balancer: least outstanding requests, with a bounded first-in, first-out queue."""

import asyncio
import itertools

from services.generator.protocol import RequestError
from services.generator.router.replica import Replica

# Seconds.
_RETRY_AFTER = 5


class Balancer:
    """Assigns requests to the engine with the fewest in flight, up to ``slots`` on each.

    While all slots are taken, up to ``queue_size`` requests wait in order of arrival.
    """

    def __init__(self, *, slots: int, queue_size: int) -> None:
        self.closed = False
        self.queued = 0
        self._slots = slots
        self._queue_size = queue_size
        self._replicas: list[Replica] = []
        self._first = asyncio.Lock()  # held by the first in the queue
        self._changed = asyncio.Event()
        self._uses = itertools.count(1)
        self._in_flight = 0
        self._idle = asyncio.Event()

    def add(self, replica: Replica) -> None:
        replica.on_available = self._changed.set
        self._replicas.append(replica)
        self._changed.set()

    def remove(self, replica: Replica) -> None:
        if replica in self._replicas:
            self._replicas.remove(replica)

    async def acquire(self) -> Replica:
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
                    if replica := self._choose():
                        replica.last_used = next(self._uses)
                        replica.in_flight += 1
                        self._in_flight += 1
                        return replica
                    self._changed.clear()
                    await self._changed.wait()
        finally:
            self.queued -= 1
        raise stopping()

    def release(self, replica: Replica) -> None:
        replica.in_flight -= 1
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
            for replica in self._replicas:
                replica.evict()

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        while self._in_flight:
            self._idle.clear()
            await self._idle.wait()

    def _choose(self) -> Replica | None:
        free = [e for e in self._replicas if not e.suspect and e.in_flight < self._slots]
        return min(free, key=lambda e: (e.in_flight, e.last_used), default=None)


def stopping() -> RequestError:
    message = "the generator is shutting down"
    return RequestError(503, message, code="stopping", retry_after=_RETRY_AFTER)
