"""Permits as the users of sandboxes see them."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from redis.asyncio import Redis

from shared.errors import ServiceError
from shared.ledger.permits.script import Answer, PermitScript, Wish
from shared.ledger.permits.settings import Outcome, PlaceState, PoolSettings
from shared.service.logs import get_logger

log = get_logger(__name__)
T = TypeVar("T")


class Permit:
    """The right to have one program run by the sandbox at ``url``."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self.outcome: Outcome | None = None
        self.retry_after = 0.0

    def report(self, outcome: Outcome, retry_after: float = 0.0) -> None:
        """Say how the sandbox took the request. A permit without a report changes nothing.

        Args:
            outcome: It counts when the permit is given back, if it has not expired by then.
            retry_after: With ``REJECTED``: for how many seconds the sandbox gets nothing.
        """
        if self.outcome is not None:
            raise RuntimeError(f"this permit has been reported {self.outcome} already")
        self.outcome, self.retry_after = outcome, retry_after


class SandboxPool:
    """Shares sandboxes out among all processes that use the same Redis and the same URLs.

    Waiters are served in the order in which they came. Of a process that is killed nothing is
    left after ``settings.lease_ttl``.

    Args:
        redis: From ``connect_async``; the caller closes it, after the pool.
        urls: The sandboxes. Pools count as one if they have the same.
        holder: Who asks; for people who look into Redis.
        settings: Where processes differ, those of the one that acts apply.
    """

    def __init__(
        self, redis: Redis, urls: Sequence[str], holder: str, *, settings: PoolSettings
    ) -> None:
        self._script = PermitScript(redis, urls, settings)
        self._holder = holder
        self._renew_every = settings.lease_ttl / 3
        self._held: dict[str, str] = {}
        self._renewal: asyncio.Task[None] | None = None
        self._unfinished: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def permit(
        self, *, exclusive: bool = False, avoid: str | None = None
    ) -> AsyncIterator[Permit]:
        """Wait for a sandbox and hold it.

        Args:
            exclusive: Be alone on it.
            avoid: A sandbox that is taken only if no other one is usable.

        Raises:
            ServiceError: Redis has been away for longer than commands are repeated.
        """
        permit = await self._acquire(Wish(exclusive, avoid))
        try:
            yield permit
        finally:
            await asyncio.shield(self._start(self._release(permit)))

    async def state(self) -> list[PlaceState]:
        """The sandboxes in the order of their URLs."""
        return await self._script.state()

    async def close(self) -> None:
        """Finish what cancelled users have left to be given back."""
        if self._renewal is not None:
            self._renewal.cancel()
        await asyncio.gather(*self._unfinished, return_exceptions=True)

    async def _acquire(self, wish: Wish) -> Permit:
        name = f"{self._holder}:{uuid.uuid4().hex}"
        ticket = ""
        while True:
            asking = self._start(self._script.ask(name, ticket, wish))
            try:
                answer = await asyncio.shield(asking)
                if answer.url is not None:
                    return self._hold(Permit(name, answer.url))
                ticket = answer.ticket
                await self._woken(name, answer.ask_again)
            except asyncio.CancelledError:
                await asyncio.shield(self._start(self._withdraw(name, asking)))
                raise

    async def _woken(self, name: str, timeout: float) -> None:
        waking = self._start(self._script.woken(name, timeout))
        try:
            await asyncio.shield(waking)
        finally:
            while not waking.done():  # before Python 3.12 a command may swallow a cancellation
                waking.cancel()
                await asyncio.wait([waking], timeout=0.1)

    async def _withdraw(self, name: str, asking: asyncio.Task[Answer]) -> None:
        # A question that arrived after the withdrawal would queue up again.
        await asyncio.wait([asking])
        await self._script.withdraw(name)

    async def _release(self, permit: Permit) -> None:
        del self._held[permit.name]
        await self._script.release(permit.name, permit.url, permit.outcome, permit.retry_after)

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Let ``work`` be done, whatever happens to the one who waits for it."""
        task = asyncio.create_task(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return task

    def _hold(self, permit: Permit) -> Permit:
        self._held[permit.name] = permit.url
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew())
        return permit

    async def _renew(self) -> None:
        await asyncio.sleep(self._renew_every)
        while self._held:
            try:
                lost = await self._script.renew(self._held)
            except ServiceError as error:
                log.error("permits are not renewed", reason=str(error))
                lost = set()
            for name in lost & self._held.keys():
                log.warning("a permit expired in use", sandbox=self._held[name])
            await asyncio.sleep(self._renew_every)
