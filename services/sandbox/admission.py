"""Admission control: bounded concurrency, a bounded first-come-first-served queue, backpressure.

A request beyond the queue is rejected with 503 and Retry-After.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

DEFAULT_SECONDS_PER_RUN = 1.0
SMOOTHING = 0.1


class QueueFullError(Exception):
    """The queue is full.

    Attributes:
        retry_after: Whole seconds after which a slot is likely to be free.
    """

    def __init__(self, queued: int, retry_after: int) -> None:
        super().__init__(f"the queue is full ({queued} requests wait); retry in {retry_after} s")
        self.retry_after = retry_after


class Admission:
    """Assigns the slots 0 … concurrency-1 to requests in order of arrival."""

    def __init__(self, concurrency: int, queue_limit: int) -> None:
        self._concurrency = concurrency
        self._queue_limit = queue_limit
        self._free = list(range(concurrency - 1, -1, -1))
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._seconds_per_run = DEFAULT_SECONDS_PER_RUN

    @property
    def in_flight(self) -> int:
        return self._concurrency - len(self._free)

    @property
    def queued(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def slot(self, *, admitted: bool = False) -> AsyncIterator[int]:
        """Hold a slot for the duration of the block; yields its number.

        Args:
            admitted: The run belongs to a submit that is already admitted: it waits even if the
                queue is full.

        Raises:
            QueueFullError: All slots are taken and the queue is full.
        """
        number = await self._acquire(admitted)
        started = time.monotonic()
        try:
            yield number
        finally:
            seconds = time.monotonic() - started
            self._seconds_per_run += SMOOTHING * (seconds - self._seconds_per_run)
            self._release(number)

    async def _acquire(self, admitted: bool) -> int:
        if self._free:
            return self._free.pop()
        if not admitted and len(self._waiting) >= self._queue_limit:
            raise QueueFullError(len(self._waiting), self._retry_after())
        place: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.cancelled():
                with suppress(ValueError):
                    self._waiting.remove(place)
            else:
                self._release(place.result())  # the slot arrived just as the request was cancelled
            raise

    def _release(self, number: int) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(number)
                return
        self._free.append(number)

    def _retry_after(self) -> int:
        seconds = self._seconds_per_run * (len(self._waiting) + 1) / self._concurrency
        return min(60, max(1, math.ceil(seconds)))
