"""A request's place on an engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.generator.router.asked import Asked
from services.generator.router.engine import Engine
from services.generator.router.failures import AttemptError, Reason


class Lease:
    """Holds the place, and the work that the request still is, until :meth:`close`."""

    def __init__(self, engine: Engine, asked: Asked) -> None:
        self.engine = engine
        self._prompt_left = asked.prompt_tokens
        self._output_left = asked.output_tokens
        self._evicted = ""
        self._timer: asyncio.Timeout | None = None
        engine.leases.add(self)
        engine.load += self._prompt_left + self._output_left

    def progressed(self, tokens: int) -> None:
        """The engine wrote so many more tokens, and hence has read the prompt."""
        self.engine.gave_token()
        tokens = min(tokens, self._output_left)
        self.engine.load -= self._prompt_left + tokens
        self._prompt_left = 0
        self._output_left -= tokens

    def close(self) -> None:
        self.engine.leases.discard(self)
        self.engine.load -= self._prompt_left + self._output_left
        self._prompt_left = self._output_left = 0

    @asynccontextmanager
    async def until(self, deadline: float) -> AsyncIterator[None]:
        """Bound the work under this lease by ``deadline`` (loop time) and by :meth:`evict`.

        Raises:
            AttemptError: It was evicted.
            TimeoutError: The deadline has passed.
        """
        try:
            async with asyncio.timeout_at(deadline) as self._timer:
                try:
                    if self._evicted:
                        raise TimeoutError
                    yield
                finally:
                    self._timer = None
        except TimeoutError:
            if self._evicted:
                raise AttemptError(Reason.EJECTED, self._evicted) from None
            raise

    def evict(self, why: str) -> None:
        """End what goes on in :meth:`until`; no task of its own has to watch for that."""
        self._evicted = why
        if self._timer is not None and not self._timer.expired():
            self._timer.reschedule(asyncio.get_running_loop().time())
