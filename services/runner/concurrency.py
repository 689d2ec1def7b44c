"""Adaptive concurrency limit (AIMD) and admission control for requests in flight."""

import asyncio
import heapq
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

_START = 16
_DECREASE_FACTOR = 0.7
_ROUNDS_TO_CAP = 32
_SMALL_LIMITS_STEP = 4
_COMPARED_AT = 1.5
_REQUIRED_SPEEDUP = 0.25
_ROUNDS_HELD = 8
# Seconds in which an admitted probe is sent.
_PROBE = 0.1


@dataclass(slots=True)
class _Round:
    """As many answers as the limit was; ``load`` sums the requests in flight of each."""

    size: int
    answers: int = 0
    load: int = 0
    seconds: float = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Throughput:
    """Tokens per second of all requests together, at an average of ``load`` in flight."""

    load: float
    speed: float


class ConcurrencyLimit:
    """Additive increase, multiplicative decrease of the requests in flight, from 1 to ``cap``.

    Slow start: the limit begins low and grows by one with each answer, which doubles it per round,
    until the first decrease; after that it grows by a 32nd of the cap per round, or by a quarter of
    itself if that is less. A round is as many answers as the limit. Answers that arrive while no
    sample waits for admission do not count, because the limit was not what bounded them.

    - Overload (a server rejects a request, or no server is reachable) decreases the limit by 30 %.
      Failures of requests that were in flight at the time of a decrease are the same overload and
      do not decrease it again.
    - Saturation: more requests in flight make each answer slower, and are useful as long as the
      throughput of all together grows. By Little's law the throughput is the load divided by the
      seconds per token. It is compared each time the load has grown by half: if less than a quarter
      of that growth arrived as throughput, the servers are saturated and requests only wait in
      their queues. The limit returns to the earlier load, and probes higher again after 8 rounds.
    """

    def __init__(self, cap: int) -> None:
        self.decreases = 0
        self._cap = cap
        self._limit = float(min(cap, _START))
        self._slow_start = True
        self._round = _Round(self.value)
        self._base: _Throughput | None = None
        self._rounds_held = 0

    @property
    def value(self) -> int:
        return int(self._limit)

    def on_success(self, *, load: int, seconds: float, tokens: int | None, queued: bool) -> None:
        """Record an answer, and increase the limit.

        Args:
            load: Requests in flight when this one was sent, itself included.
            seconds: Latency of the answer.
            tokens: Its length, if known.
            queued: Whether samples wait for admission.
        """
        if not queued:
            return
        now = self._round
        now.answers += 1
        now.load += load
        now.seconds += seconds
        now.tokens += tokens or 0
        if not self._rounds_held:
            self._limit = min(float(self._cap), self._limit + self._increase())
        if now.answers >= now.size:
            self._end_round()

    def on_overload(self, decreases: int) -> None:
        """Decrease the limit after a failed request.

        Args:
            decreases: :attr:`decreases` when the request was sent.
        """
        if decreases != self.decreases:
            return
        self.decreases += 1
        self._limit = max(1.0, self._limit * _DECREASE_FACTOR)
        self._slow_start = False
        self._base = None
        self._rounds_held = 0
        self._round = _Round(self.value)

    def _increase(self) -> float:
        """The increase per answer."""
        if self._slow_start:
            return 1.0
        step = min(self._cap / _ROUNDS_TO_CAP, self._limit / _SMALL_LIMITS_STEP)
        return max(1.0, step) / self._limit

    def _end_round(self) -> None:
        measured = _throughput(self._round)
        if self._rounds_held:
            self._rounds_held -= 1
            self._base = measured
        elif self._base is None or measured is None:
            self._base = measured
        elif measured.load >= _COMPARED_AT * self._base.load:
            if _scales(self._base, measured):
                self._base = measured
            else:
                self._limit = min(self._limit, max(1.0, self._base.load))
                self._rounds_held = _ROUNDS_HELD
                self._slow_start = False
        self._round = _Round(self.value)


def _throughput(done: _Round) -> _Throughput | None:
    if not done.tokens or done.seconds <= 0:
        return None
    load = done.load / done.answers
    return _Throughput(load, load * done.tokens / done.seconds)


def _scales(before: _Throughput, now: _Throughput) -> bool:
    growth = now.load / before.load - 1
    return now.speed >= before.speed * (1 + _REQUIRED_SPEEDUP * growth)


# Admission control


@dataclass(frozen=True, slots=True)
class SentRequest:
    """State of the gate when a request was sent: requests in flight, decreases of the limit."""

    in_flight: int
    decreases: int


class AdmissionGate:
    """Admits requests up to the limit, lowest turn first, and none while no server may get one.

    Args:
        limit: The concurrency limit; it adapts to the results reported here.
        closed_for: Returns the seconds for which no server may get a request; 0 if one may.
        probing: Returns whether only one request may be sent, to see whether a server is back.
    """

    def __init__(
        self,
        limit: ConcurrencyLimit,
        closed_for: Callable[[], float],
        probing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._limit = limit
        self._closed_for = closed_for
        self._probing = probing
        self._in_flight = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()
        self._reopening: asyncio.TimerHandle | None = None
        self._failed: Exception | None = None

    @asynccontextmanager
    async def admit(self, turn: int) -> AsyncIterator[None]:
        """Wait for admission, and count as in flight until the block ends."""
        await self._enter(turn)
        try:
            yield
        finally:
            self._leave()

    def send(self) -> SentRequest:
        """Record the state at the moment a request is sent."""
        return SentRequest(self._in_flight, self._limit.decreases)

    def on_success(self, sent: SentRequest, seconds: float, tokens: int | None) -> None:
        """Report an answer that took ``seconds``, and admit more requests if the limit grew."""
        self._limit.on_success(
            load=sent.in_flight,
            seconds=seconds,
            tokens=tokens,
            queued=bool(self._waiting),
        )
        self._admit_waiting()

    def on_overload(self, sent: SentRequest) -> None:
        """Report that a server rejected the request, or that no server was reachable."""
        self._limit.on_overload(sent.decreases)

    def fail(self, error: Exception) -> None:
        """Raise ``error`` in all that wait for admission, and in all that come later."""
        self._failed = error
        for _, _, admitted in self._waiting:
            if not admitted.done():
                admitted.set_exception(error)
        self._waiting.clear()

    def close(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None

    async def _enter(self, turn: int) -> None:
        if self._failed is not None:
            raise self._failed
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (turn, next(self._arrivals), admitted))
        self._admit_waiting()
        try:
            await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():  # admitted and cancelled at the same moment
                self._leave()
            raise

    def _leave(self) -> None:
        self._in_flight -= 1
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._waiting and self._in_flight < self._limit.value:
            if (seconds := self._closed_for()) > 0:
                self._reopen_after(seconds)
                return
            _, _, admitted = heapq.heappop(self._waiting)
            if not admitted.cancelled():
                self._in_flight += 1
                admitted.set_result(None)
                if self._probing():
                    self._reopen_after(_PROBE)
                    return

    def _reopen_after(self, seconds: float) -> None:
        if self._reopening is None:
            # Jitter keeps rejected runners from retrying at the same moment.
            seconds *= random.uniform(1.0, 1.25)
            self._reopening = asyncio.get_running_loop().call_later(seconds, self._reopen)

    def _reopen(self) -> None:
        self._reopening = None
        self._admit_waiting()
