"""Admission control for sandboxes: a cap on the calls of each one, for all processes together.

A permit is a member of a sorted set in Redis, by the time of its expiry, which its holder renews.
An exclusive permit reserves its sandbox until the others have left it. After a 503 or a broken
connection a sandbox is paused.
"""

import asyncio
import random
import uuid
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import resources

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.errors import ServiceError
from shared.ledger.pipelined import PipelinedRedis, Script
from shared.service.logs import get_logger

log = get_logger(__name__)

urgent: ContextVar[bool] = ContextVar("urgent", default=False)
"""Whether the present task judges a reward, for which a trainer's GPUs wait."""

# Bounds of the seconds between two questions of a waiter that nobody of its process wakes.
_ASK_AGAIN = (0.05, 0.15)
# Waiters that a permit given back wakes: the first one may wait for another sandbox.
_WOKEN = 2

_SCRIPT = Script(resources.files(__package__).joinpath("permits.lua").read_text())


@dataclass(slots=True)
class Permit:
    """The right to have one program run by the sandbox at ``url``.

    When it is given back, the sandbox is paused for all processes, for ``paused`` seconds.
    """

    name: str
    url: str
    paused: float | None = None


class SandboxPool:
    """Shares sandboxes among all processes that use the same Redis.

    Args:
        commands: Connection to Redis; the caller closes it, after the pool.
        urls: The sandboxes.
        holder: Name of the process, which identifies its permits in Redis.
        max_concurrency: Cap on the calls of one sandbox. Each process uses its own.
        lease: Seconds after which the permits of a killed process expire.
    """

    def __init__(
        self,
        commands: PipelinedRedis,
        urls: Sequence[str],
        holder: str,
        *,
        max_concurrency: int,
        lease: float = 10.0,
    ) -> None:
        self.urls = tuple(dict.fromkeys(urls))
        self._commands = commands
        self._holder = holder
        self._max_concurrency = max_concurrency
        self._caps = dict.fromkeys(self.urls, max_concurrency)
        self._lease = lease
        self._held: dict[str, str] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._renewal: asyncio.Task[None] | None = None
        self._unfinished: set[asyncio.Task[None]] = set()

    def limit(self, url: str, calls: int) -> None:
        """Set a lower cap for one sandbox, which would let further calls wait."""
        self._caps[url] = max(1, min(self._max_concurrency, calls))

    @asynccontextmanager
    async def permit(
        self, *, exclusive: bool = False, avoid: str | None = None, only: str | None = None
    ) -> AsyncIterator[Permit]:
        """Wait for a sandbox and hold it.

        Args:
            exclusive: Wait until the sandbox is idle, and admit no other request meanwhile.
            avoid: URL of a sandbox to use only if all others are full or paused.
            only: URL of the one sandbox to use; ``avoid`` then has no effect.

        Raises:
            ServiceError: Redis is still unavailable after all retries.
        """
        # The sandbox with the smallest share of this process's calls comes first.
        calls = Counter(self._held.values())
        order = random.sample(self.urls, len(self.urls)) if only is None else [only]
        order.sort(key=lambda url: (url == avoid, calls[url] / self._caps[url]))
        permit = Permit(f"{self._holder}:{uuid.uuid4().hex}", "")
        try:
            while not await self._ask(permit, order, exclusive):
                await self._wait()
            yield permit
        except ServiceError:
            order = []  # nothing was granted that could be returned
            raise
        finally:
            # To its end, even if the caller is cancelled. Redis runs it after a question on its
            # way, which may be granted the permit.
            release = asyncio.create_task(self._release(permit, order))
            self._unfinished.add(release)
            release.add_done_callback(self._unfinished.discard)
            await asyncio.shield(release)

    async def close(self) -> None:
        """Stop renewing, and wait until the permits of cancelled tasks are released."""
        if self._renewal is not None:
            self._renewal.cancel()
        await asyncio.gather(*self._unfinished, return_exceptions=True)

    async def _ask(self, permit: Permit, order: Sequence[str], exclusive: bool) -> bool:
        for url in order:
            reply = await self._run("ask", permit.name, url, 0 if exclusive else self._caps[url])
            if reply == 1:
                permit.url = self._held[permit.name] = url
                if self._renewal is None or self._renewal.done():
                    self._renewal = asyncio.create_task(self._renew())
            if reply:
                return reply == 1
        return False

    async def _wait(self) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if urgent.get() else self._waiting.append)(woken)
        try:
            await asyncio.wait([woken], timeout=random.uniform(*_ASK_AGAIN))
        finally:
            if woken in self._waiting:
                self._waiting.remove(woken)

    async def _release(self, permit: Permit, order: Sequence[str]) -> None:
        self._held.pop(permit.name, None)
        paused = "" if permit.paused is None else permit.paused
        for url in [permit.url] if permit.url else order:
            await self._run("release", permit.name, url, paused)
        for _ in range(min(_WOKEN, len(self._waiting))):
            self._waiting.popleft().set_result(None)

    async def _renew(self) -> None:
        await asyncio.sleep(self._lease / 3)
        while self._held:
            try:
                for name, url in list(self._held.items()):
                    if name in self._held:  # not released meanwhile
                        await self._run("renew", name, url)
            except ServiceError as error:
                log.error("cannot renew permits", reason=str(error))
            await asyncio.sleep(self._lease / 3)

    async def _run(self, command: str, name: str, url: str, value: str | float = "") -> int:
        names = [f"plumbline:permits:{kind}:{url}" for kind in ("held", "alone", "paused")]
        arguments: list[str | float] = [command, name, self._lease, value]
        try:
            return int(await self._commands.run(_SCRIPT, names, arguments))
        except (RedisConnectionError, RedisTimeoutError) as error:
            raise ServiceError(f"sandbox permits are unavailable: Redis: {error}") from None
