"""A pool without limits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from services.judge.permits import Permit


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
        limits: Lower caps by sandbox.
    """

    urls: list[str]
    grants: list[Grant] = field(default_factory=list)
    held: int = 0
    limits: dict[str, int] = field(default_factory=dict)

    def limit(self, url: str, calls: int) -> None:
        self.limits[url] = calls

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
