"""Concurrency limits of a judge process, with priority for rewards over evaluations."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

urgent: ContextVar[bool] = ContextVar("urgent", default=False)
"""Whether the present task judges a reward, for which a trainer's GPUs wait."""

# An evaluation gets at least every fourth place, so that rewards cannot starve it.
_TURNS = 4


class Places:
    """Limits how many completions are judged at once; a free place goes to a reward first."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._given = 0
        self._rewards: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        if self._free:
            self._free -= 1
        else:
            given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            (self._rewards if urgent.get() else self._others).append(given)
            try:
                await given
            except asyncio.CancelledError:
                if not given.cancelled():  # it was given in the same moment
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        self._given += 1
        first, second = self._rewards, self._others
        if self._given % _TURNS == 0:
            first, second = second, first
        while waiting := first or second:
            if not (given := waiting.popleft()).done():
                given.set_result(None)
                return
        self._free += 1


class Room:
    """Whether a process may take another batch, for threads to wait for.

    It takes one while it has fewer completions than twice what it judges at once, so that the next
    are there when places become free. Evaluations do not fill the room of rewards.
    """

    def __init__(self, places: int) -> None:
        self._limit = 2 * places
        self._rewards = self._all = 0
        self.any = threading.Event()
        self.for_rewards = threading.Event()
        self.count(0)

    def count(self, by: int) -> None:
        """Completions that were taken or, below 0, judged by the present task."""
        self._all += by
        self._rewards += by if urgent.get() else 0
        for event, number in ((self.any, self._all), (self.for_rewards, self._rewards)):
            if number < self._limit:
                event.set()
            else:
                event.clear()
