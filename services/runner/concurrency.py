"""Adaptive concurrency limit (AIMD) and admission control for requests in flight."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

_START = 16
_DECREASE_FACTOR = 0.7
_ROUNDS_TO_CAP = 32
_SMALL_LIMITS_STEP = 4


class ConcurrencyLimit:
    """Additive increase, multiplicative decrease of the requests in flight, from 1 to ``cap``.

    Slow start: the limit grows by one with each answer, which doubles it per round, until the first
    decrease. After that it grows by a 32nd of the cap per round, or by a quarter of itself if that
    is less. A round is as many answers as the limit.
    """

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._limit = float(min(cap, _START))
        self._slow_start = True

    @property
    def value(self) -> int:
        return int(self._limit)

    def on_success(self) -> None:
        """Increase the limit after an answer."""
        step = 1.0
        if not self._slow_start:
            per_round = min(self._cap / _ROUNDS_TO_CAP, self._limit / _SMALL_LIMITS_STEP)
            step = max(1.0, per_round) / self._limit
        self._limit = min(float(self._cap), self._limit + step)

    def on_overload(self) -> None:
        """Decrease the limit by 30 %."""
        self._limit = max(1.0, self._limit * _DECREASE_FACTOR)
        self._slow_start = False

    def on_outage(self) -> None:
        """Start again with one request, because no server has answered for a while."""
        self._limit = 1.0
        self._slow_start = True


class AdmissionGate:
    """Admits requests up to the limit, in their order, and none while no server may get one.

    Args:
        limit: The concurrency limit.
        closed_for: Returns the seconds for which no server may get a request; 0 if one may.
    """

    def __init__(self, limit: ConcurrencyLimit, closed_for: Callable[[], float]) -> None:
        self.limit = limit
        self._closed_for = closed_for
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._reopening: asyncio.TimerHandle | None = None
        self._failed: Exception | None = None

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[None]:
        """Wait for admission, and count as in flight until the block ends."""
        if self._failed is not None:
            raise self._failed
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(admitted)
        self._admit_waiting()
        try:
            await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():  # admitted and cancelled at the same moment
                self._leave()
            raise
        try:
            yield
        finally:
            self._leave()

    def fail(self, error: Exception) -> None:
        """Raise ``error`` in all that wait for admission, and in all that come later."""
        self._failed = error
        for admitted in self._waiting:
            if not admitted.done():
                admitted.set_exception(error)
        self._waiting.clear()

    def close(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None

    def _leave(self) -> None:
        self._in_flight -= 1
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._waiting and self._in_flight < self.limit.value:
            if (seconds := self._closed_for()) > 0:
                self._reopen_after(seconds)
                return
            admitted = self._waiting.popleft()
            if not admitted.done():
                self._in_flight += 1
                admitted.set_result(None)

    def _reopen_after(self, seconds: float) -> None:
        if self._reopening is None:
            # Jitter keeps rejected runners from retrying at the same moment.
            seconds *= random.uniform(1.0, 1.25)
            self._reopening = asyncio.get_running_loop().call_later(seconds, self._reopen)

    def _reopen(self) -> None:
        self._reopening = None
        self._admit_waiting()
