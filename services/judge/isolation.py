"""Isolation of a suspect job: it has the worker process to itself (a readers-writer lock)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Isolation:
    """Lets jobs run together, or one job alone.

    A job that must be alone waits for the jobs that run already, and goes before all others.
    """

    def __init__(self) -> None:
        self._running = 0
        self._alone = False
        self._waiting_alone = 0
        self._changed = asyncio.Condition()

    @property
    def closed(self) -> bool:
        """Whether a job is alone, or waits for it."""
        return self._alone or self._waiting_alone > 0

    @asynccontextmanager
    async def admit(self, *, alone: bool) -> AsyncIterator[None]:
        """Wait for admission, and count as running until the block ends."""
        if alone:
            await self._wait_to_be_alone()
        elif self.closed:
            async with self._changed:
                await self._changed.wait_for(lambda: not self.closed)
        self._running += 1
        self._alone = alone
        try:
            yield
        finally:
            self._running -= 1
            self._alone = False
            async with self._changed:
                self._changed.notify_all()

    async def _wait_to_be_alone(self) -> None:
        self._waiting_alone += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._running == 0)
        finally:
            self._waiting_alone -= 1
