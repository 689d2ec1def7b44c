"""A pool without limits, and waiting for a state of a real pool."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from services.judge.permits import Permit, SandboxPool, SandboxState


@dataclass(frozen=True, slots=True)
class Grant:
    """What was asked for, and what was given and reported."""

    permit: Permit
    exclusive: bool
    avoid: str | None


@dataclass
class OpenPool:
    """Gives a permit to whoever asks: sandboxes in turn, the one to avoid only if it is alone.

    Attributes:
        grants: All permits there ever were.
        held: How many are out now.
    """

    urls: list[str]
    grants: list[Grant] = field(default_factory=list)
    held: int = 0

    @asynccontextmanager
    async def permit(
        self, *, exclusive: bool = False, avoid: str | None = None, only: str | None = None
    ) -> AsyncIterator[Permit]:
        urls = [url for url in self.urls if url != avoid] or self.urls
        urls = urls if only is None else [only]
        permit = Permit(f"permit {len(self.grants)}", urls[len(self.grants) % len(urls)])
        self.grants.append(Grant(permit, exclusive, avoid))
        self.held += 1
        try:
            yield permit
        finally:
            self.held -= 1


async def until(pool: SandboxPool, reached: Callable[[list[SandboxState]], bool]) -> None:
    """Wait until the sandboxes of ``pool`` are in some state."""
    async with asyncio.timeout(20):
        while not reached(await pool.state()):
            await asyncio.sleep(0.002)
