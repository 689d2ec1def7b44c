"""Sandbox pool: permits whose leases are renewed while they are held."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from redis.asyncio import Redis

from services.judge.permits.script import (
    CallOutcome,
    PermitAnswer,
    PermitRequest,
    PermitScript,
    PoolSettings,
    SandboxState,
)
from shared.errors import ServiceError
from shared.ledger.pipelined import PipelinedRedis
from shared.service.logs import get_logger
from shared.service.tasks import cancel_and_wait

log = get_logger(__name__)
T = TypeVar("T")


class Permit:
    """The right to have one program run by the sandbox at ``url``."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self.outcome: CallOutcome | None = None
        self.retry_after = 0.0

    def report(self, outcome: CallOutcome, retry_after: float = 0.0) -> None:
        """Report the outcome of the request. A permit without a report changes no limit.

        Args:
            outcome: Applied when the permit is released; ignored if the permit has expired.
            retry_after: Seconds for which the sandbox gets no further request; for ``REJECTED``.
        """
        if self.outcome is not None:
            raise RuntimeError(f"the outcome of this permit is already reported: {self.outcome}")
        self.outcome, self.retry_after = outcome, retry_after


class SandboxPool:
    """Shares sandboxes among all processes that use the same Redis and the same URLs.

    Waiters are served in order of arrival. If a process is killed, its permits expire after
    ``settings.lease_ttl``.

    Args:
        redis: From ``connect_async``; the caller closes it, after the pool.
        urls: The sandboxes. Pools with the same URLs share their state.
        holder: Name of the process, which identifies its permits in Redis.
        settings: If processes differ, each call uses the settings of its own process.
        commands: Connection to the same server that the pool shares with others.
    """

    def __init__(
        self,
        redis: Redis,
        urls: Sequence[str],
        holder: str,
        *,
        settings: PoolSettings,
        commands: PipelinedRedis | None = None,
    ) -> None:
        self.urls = tuple(urls)
        self._script = PermitScript(redis, commands or PipelinedRedis(redis), urls, settings)
        self._holder = holder
        self._renew_every = settings.lease_ttl / 3
        self._held: dict[str, str] = {}
        self._renewal: asyncio.Task[None] | None = None
        self._unfinished: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def permit(
        self, *, exclusive: bool = False, avoid: str | None = None, only: str | None = None
    ) -> AsyncIterator[Permit]:
        """Wait for a sandbox and hold it.

        Args:
            exclusive: Wait until the sandbox is idle, and admit no other request meanwhile.
            avoid: URL of a sandbox to use only if no other one is open.
            only: URL of the one sandbox to use, before all other requests; ``avoid`` then has no
                effect.

        Raises:
            ServiceError: Redis is still unavailable after all retries.
        """
        permit = await self._acquire(PermitRequest(exclusive, avoid, only))
        try:
            yield permit
        finally:
            await asyncio.shield(self._start(self._release(permit)))

    async def state(self) -> list[SandboxState]:
        """Return the state of the sandboxes in the order of their URLs."""
        return await self._script.state()

    async def close(self) -> None:
        """Stop renewing, and wait until the permits of cancelled tasks are released."""
        if self._renewal is not None:
            self._renewal.cancel()
        await asyncio.gather(*self._unfinished, return_exceptions=True)

    async def _acquire(self, request: PermitRequest) -> Permit:
        name = f"{self._holder}:{uuid.uuid4().hex}"
        ticket = ""
        while True:
            asking = self._start(self._script.ask(name, ticket, request))
            try:
                answer = await asyncio.shield(asking)
                if answer.url is not None:
                    return self._hold(Permit(name, answer.url))
                ticket = answer.ticket
                await self._wait_for_wake(name, answer.ask_again)
            except asyncio.CancelledError:
                await asyncio.shield(self._start(self._withdraw(name, asking)))
                raise

    async def _wait_for_wake(self, name: str, timeout: float) -> None:
        waking = self._start(self._script.wait_for_wake(name, timeout))
        try:
            await asyncio.shield(waking)
        finally:
            await cancel_and_wait(waking)

    async def _withdraw(self, name: str, asking: asyncio.Task[PermitAnswer]) -> None:
        # A request that arrived after the withdrawal would join the queue again.
        await asyncio.wait([asking])
        await self._script.withdraw(name)

    async def _release(self, permit: Permit) -> None:
        del self._held[permit.name]
        await self._script.release(permit.name, permit.url, permit.outcome, permit.retry_after)

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run ``work`` to its end, even if the caller is cancelled."""
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
                log.error("cannot renew permits", reason=str(error))
                lost = set()
            for name in lost & self._held.keys():
                log.warning("permit expired in use", sandbox=self._held[name])
            await asyncio.sleep(self._renew_every)
