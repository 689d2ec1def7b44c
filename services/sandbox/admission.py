"""Admission control, with the server's metrics: bounded concurrency, a bounded queue, backpressure.

Requests are served in order of arrival. One beyond the queue is rejected with 503 and Retry-After.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

DEFAULT_SECONDS_PER_RUN = 1.0
SMOOTHING = 0.1
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


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


class SandboxMetrics:
    """Metrics of one server, in a separate registry so that two servers can share a process."""

    def __init__(self, admission: Admission) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        outcomes = {
            "requests": "Requests to /run_code by outcome.",
            "run_cases": "Requests to /run_cases by outcome.",
            "submits": "Requests to /submit by outcome; their runs count in run and busy seconds.",
        }
        self.requests, self.run_cases, self.submits = (
            Counter(f"plumbline_sandbox_{name}", text, ["outcome"], registry=self.registry)
            for name, text in outcomes.items()
        )
        self.run_seconds = Histogram(
            "plumbline_sandbox_run_seconds",
            "Seconds from admission to the answer, compilation included.",
            ["language"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.busy_seconds = Counter(
            "plumbline_sandbox_busy_seconds",
            "Seconds during which slots were taken, summed over slots.",
            registry=self.registry,
        )
        for name, text, value in (
            ("in_flight", "Requests that run now.", lambda: admission.in_flight),
            ("queued", "Requests that wait for a slot.", lambda: admission.queued),
        ):
            gauge = Gauge(f"plumbline_sandbox_{name}", text, registry=self.registry)
            gauge.set_function(value)
