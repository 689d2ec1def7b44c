"""Admission control for sandboxes: a cap on the calls of each one, for all processes together.

A permit is a member of a sorted set in Redis, by the time of its expiry, which its holder renews.
An exclusive permit reserves its sandbox until the others have left it. After a 503 or a broken
connection a sandbox is paused.
"""

import asyncio
import random
import uuid
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.errors import ServiceError
from shared.ledger.pipelined import PipelinedRedis, Script
from shared.service.logs import get_logger

log = get_logger(__name__)
T = TypeVar("T")

urgent: ContextVar[bool] = ContextVar("urgent", default=False)
"""Whether the present task judges a reward, for which a trainer's GPUs wait."""

# Bounds of the seconds between two questions of a waiter that nobody of its process wakes.
_ASK_AGAIN = (0.05, 0.15)
# Waiters that a permit given back wakes: the first one may wait for another sandbox.
_WOKEN = 2

# KEYS: of a sandbox: held (permit -> expiry), alone (the exclusive permit), and paused. ARGV: a
# command, a permit, the seconds of a lease, and
# ask: the cap, or 0 for exclusive use. Returns 1 if the permit is granted, 2 if the sandbox is
#   reserved for it, otherwise 0. Idempotent.
# renew: nothing more.
# release: the seconds of a pause, which has no effect after the permit expired, or an empty text.
#   Also for a waiter, which may have been granted the permit.
_SCRIPT = Script("""
local RESERVED, LEAST_PAUSE, LONGEST_PAUSE, KEPT = 2, 0.5, 60, 24 * 3600
local held, alone, paused = KEYS[1], KEYS[2], KEYS[3]
local command, permit, lease, value = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6

local function milliseconds(seconds) return math.ceil(1000 * seconds) end

local reserved = redis.call('GET', alone)
if command == 'release' then
  if reserved == permit then redis.call('DEL', alone) end
  if redis.call('ZREM', held, permit) == 1 and value then
    local pause = milliseconds(math.max(LEAST_PAUSE, math.min(value, LONGEST_PAUSE)))
    if redis.call('PTTL', paused) < pause then redis.call('SET', paused, 1, 'PX', pause) end
  end
  return 0
end

redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
if command == 'ask' and not redis.call('ZSCORE', held, permit) then
  if redis.call('EXISTS', paused) == 1 or (reserved and reserved ~= permit) then return 0 end
  local used = redis.call('ZCARD', held)
  if value > 0 and used >= value then return 0 end
  if value == 0 then redis.call('SET', alone, permit, 'PX', milliseconds(RESERVED)) end
  if value == 0 and used > 0 then return 2 end
end
redis.call('ZADD', held, now + lease, permit)
redis.call('EXPIRE', held, KEPT)
if redis.call('GET', alone) == permit then redis.call('PEXPIRE', alone, milliseconds(lease)) end
return 1
""")


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
        self._unfinished: set[asyncio.Task[Any]] = set()

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
        order = self._order(avoid, only)
        permit = Permit(f"{self._holder}:{uuid.uuid4().hex}", "")
        asking = self._start(self._ask(permit, order, exclusive))
        try:
            while not await asyncio.shield(asking):
                await self._wait()
                asking = self._start(self._ask(permit, order, exclusive))
            yield permit
        finally:
            await asyncio.shield(self._start(self._release(permit, order, asking)))

    async def close(self) -> None:
        """Stop renewing, and wait until the permits of cancelled tasks are released."""
        if self._renewal is not None:
            self._renewal.cancel()
        await asyncio.gather(*self._unfinished, return_exceptions=True)

    def _order(self, avoid: str | None, only: str | None) -> list[str]:
        """The sandboxes to ask, the one with the smallest share of this process's calls first."""
        calls = Counter(self._held.values())
        order = random.sample(self.urls, len(self.urls)) if only is None else [only]
        return sorted(order, key=lambda url: (url == avoid, calls[url] / self._caps[url]))

    async def _ask(self, permit: Permit, order: Sequence[str], exclusive: bool) -> bool:
        for url in order:
            cap = 0 if exclusive else self._caps[url]
            reply = await self._run("ask", permit.name, url, cap)
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

    async def _release(
        self, permit: Permit, order: Sequence[str], asking: asyncio.Task[bool]
    ) -> None:
        await asyncio.wait([asking])  # it would be granted the permit afterwards
        if asking.exception():
            return  # Redis is unavailable
        self._held.pop(permit.name, None)
        paused = "" if permit.paused is None else permit.paused
        for url in [permit.url] if permit.url else order:
            await self._run("release", permit.name, url, paused)
        for _ in range(min(_WOKEN, len(self._waiting))):
            self._waiting.popleft().set_result(None)

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run ``work`` to its end, even if the caller is cancelled."""
        task = asyncio.create_task(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return task

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
