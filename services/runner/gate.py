"""Where samples wait until their request may go: a place in flight, and servers that want it."""

import asyncio
import heapq
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from services.runner.limit import ConcurrencyLimit


@dataclass(frozen=True, slots=True)
class Departure:
    """What it was like when a request went: how many were in flight, and how often cut."""

    in_flight: int
    cuts: int


class Gate:
    """Lets in as many as the limit allows, the earliest turn first, and nobody during a pause.

    Args:
        limit: Adapts to what is told here of the requests.
        pause: Seconds for which no server wants a request; 0 for none.
    """

    def __init__(self, limit: ConcurrencyLimit, pause: Callable[[], float]) -> None:
        self._limit = limit
        self._pause = pause
        self._in_flight = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()
        self._opening: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def place(self, turn: int) -> AsyncIterator[None]:
        """Wait for a place, and hold it."""
        await self._enter(turn)
        try:
            yield
        finally:
            self._leave()

    def departs(self) -> Departure:
        return Departure(self._in_flight, self._limit.cuts)

    def answered(self, departure: Departure, seconds: float, tokens: int | None) -> None:
        self._limit.answered(
            load=departure.in_flight,
            seconds=seconds,
            tokens=tokens,
            awaited=bool(self._waiting),
        )
        self._admit()

    def refused(self, departure: Departure) -> None:
        """No server wanted the request, or could be reached."""
        self._limit.cut(departure.cuts)

    def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None

    async def _enter(self, turn: int) -> None:
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (turn, next(self._arrivals), admitted))
        self._admit()
        try:
            await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():  # the place came in the moment in which we went away
                self._leave()
            raise

    def _leave(self) -> None:
        self._in_flight -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._in_flight < self._limit.value:
            if (pause := self._pause()) > 0:
                self._open_after(pause)
                return
            _, _, admitted = heapq.heappop(self._waiting)
            if not admitted.cancelled():
                self._in_flight += 1
                admitted.set_result(None)

    def _open_after(self, pause: float) -> None:
        if self._opening is None:
            # Not all runners that a server sent away are to come back in the same moment.
            pause *= random.uniform(1.0, 1.25)
            self._opening = asyncio.get_running_loop().call_later(pause, self._open)

    def _open(self) -> None:
        self._opening = None
        self._admit()
