"""Admission control: servers that take turns, their pauses, an adaptive limit (AIMD)."""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from shared.address import Address

_LONGEST_PAUSE = 10.0  # seconds without requests to a server that failed
# Bounds of a Retry-After: 0 would be no pause, and more than the longest is a refusal.
_SHORTEST_RETRY_AFTER, _LONGEST_RETRY_AFTER = 0.05, 600.0
_START = 16
_DECREASE_FACTOR = 0.7
_ROUNDS_TO_CAP = 32
_SMALL_LIMITS_STEP = 4
# As in ``/v1``, in ``/api/paas/v4`` of Z.ai or in ``/v1beta/openai`` of Gemini.
_VERSION = re.compile(r"/v\d+(beta)?\d*(/|$)")


class Server:
    """A server, and the time until which it gets no request.

    ``url`` names a version of the API, by default ``/v1``; ``headers`` carry the URL's user and
    password. ``failures`` are consecutive ones; concurrent requests that fail together count once.
    ``refuses``: its last answer was to come back much later, or never.
    """

    def __init__(self, base_url: str, backoff: float) -> None:
        address = Address.parse(base_url)
        url = address.url.removesuffix("/chat/completions")
        self.url = url if _VERSION.search(url) else f"{url}/v1"
        self.headers = address.headers
        self.name = address.name
        self.failures = 0
        self.refuses = False
        self.last_used = 0.0
        self._closed_until = 0.0
        self._backoff = backoff

    @property
    def closed_for(self) -> float:
        """Seconds until the server may get a request."""
        return max(0.0, self._closed_until - time.monotonic())

    def pause(self, retry_after: float | None = None) -> bool:
        """Pause for a Retry-After, else longer with each consecutive failure.

        Returns whether it did not pause already.
        """
        began = not self.closed_for
        self.failures += began
        self.refuses = retry_after is not None and retry_after > _LONGEST_RETRY_AFTER
        if retry_after is None or self.refuses:
            seconds = min(_LONGEST_PAUSE, self._backoff * 2.0 ** min(self.failures - 1, 10))
        else:
            seconds = max(_SHORTEST_RETRY_AFTER, retry_after)
        if began or retry_after is not None:
            self._closed_until = max(self._closed_until, time.monotonic() + seconds)
        return began

    def on_success(self) -> None:
        self.failures, self.refuses = 0, False


class Admission:
    """Admits requests up to the limit, in their order, and none while all servers pause.

    The limit is between 1 and ``cap``. Slow start: it grows by one with each answer, which doubles
    it per round, until the first decrease. After that it grows by a 32nd of the cap per round, or
    by a quarter of itself if that is less. A round is as many answers as the limit.
    """

    def __init__(self, servers: Sequence[Server], cap: int) -> None:
        self._servers = servers
        self._cap = cap
        self._limit = float(min(cap, _START))
        self._slow_start = True
        self._in_flight = 0
        self._first = asyncio.Lock()  # held by the first in the queue
        self._changed = asyncio.Event()
        self._failed: Exception | None = None

    @property
    def limit(self) -> int:
        """Requests that may be in flight."""
        return int(self._limit)

    @property
    def closed_for(self) -> float:
        """Seconds until a server may get a request."""
        return min(server.closed_for for server in self._servers)

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[Server]:
        """Wait for admission, and count as in flight until the block ends; yields the server.

        The servers take turns. One that pauses gets a request only if there is no other.
        """
        async with self._first:
            while self._failed is None:
                closed_for = self.closed_for
                if not closed_for and self._in_flight < self.limit:
                    break
                self._changed.clear()
                # Jitter keeps rejected runners from retrying at the same moment.
                seconds = closed_for * random.uniform(1.0, 1.25) if closed_for else None
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._changed.wait()
            if self._failed is not None:
                raise self._failed
            self._in_flight += 1
        try:
            server = min(self._servers, key=lambda s: (s.closed_for > 0, s.last_used))
            server.last_used = time.monotonic()
            yield server
        finally:
            self._in_flight -= 1
            self._changed.set()

    def fail(self, error: Exception) -> None:
        """Raise ``error`` in all that wait for admission, and in all that come later."""
        self._failed = error
        self._changed.set()

    def on_success(self) -> None:
        """Increase the limit after an answer."""
        step = 1.0
        if not self._slow_start:
            per_round = min(self._cap / _ROUNDS_TO_CAP, self._limit / _SMALL_LIMITS_STEP)
            step = max(1.0, per_round) / self._limit
        self._limit = min(float(self._cap), self._limit + step)
        self._changed.set()

    def on_overload(self) -> None:
        """Decrease the limit by 30 %."""
        self._limit = max(1.0, self._limit * _DECREASE_FACTOR)
        self._slow_start = False

    def on_outage(self) -> None:
        """Start again with one request, because no server has answered for a while."""
        self._limit = 1.0
        self._slow_start = True
