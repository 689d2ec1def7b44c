"""Admission control: bounded concurrency, a bounded first-come-first-served queue, backpressure.

A request beyond the queue is rejected with 503 and Retry-After.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
    """Assigns the slots 0 … concurrency-1 to requests in order of arrival.

    Attributes:
        queued: Requests that wait.
    """

    def __init__(self, concurrency: int, queue_limit: int) -> None:
        self.queued = 0
        self._concurrency = concurrency
        self._queue_limit = queue_limit
        self._free = list(range(concurrency - 1, -1, -1))
        self._semaphore = asyncio.Semaphore(concurrency)  # first come, first served
        self._seconds_per_run = DEFAULT_SECONDS_PER_RUN

    @property
    def in_flight(self) -> int:
        return self._concurrency - len(self._free)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Hold a slot for the duration of the block; yields its number.

        Raises:
            QueueFullError: All slots are taken and the queue is full.
        """
        if self._semaphore.locked() and self.queued >= self._queue_limit:
            raise QueueFullError(self.queued, self._retry_after())
        self.queued += 1
        try:
            await self._semaphore.acquire()
        finally:
            self.queued -= 1
        number = self._free.pop()
        started = time.monotonic()
        try:
            yield number
        finally:
            seconds = time.monotonic() - started
            self._seconds_per_run += SMOOTHING * (seconds - self._seconds_per_run)
            self._free.append(number)
            self._semaphore.release()

    def _retry_after(self) -> int:
        seconds = self._seconds_per_run * (self.queued + 1) / self._concurrency
        return min(60, max(1, math.ceil(seconds)))
