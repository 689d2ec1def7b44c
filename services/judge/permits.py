"""Admission control for sandboxes: a cap on the calls of each one, for all processes together.

A permit is a member of a sorted set in Redis, by the time of its expiry, which its holder renews.
An exclusive permit reserves its sandbox until the others have left it. After a 503 or a broken
connection a sandbox is paused.
"""

import asyncio
import hashlib
import random
import uuid
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from services.judge.places import urgent
from shared.errors import ServiceError
from shared.ledger.pipelined import PipelinedRedis, Script
from shared.service.logs import get_logger

log = get_logger(__name__)
T = TypeVar("T")

# Bounds of the seconds between two questions of a waiter that nobody of its process wakes.
_ASK_AGAIN = (0.05, 0.15)
# Waiters that a permit given back wakes: the first one may wait for another sandbox.
_WOKEN = 2

# KEYS: of each sandbox held (permit -> expiry), alone (the exclusive permit), and paused. ARGV: the
# command, the seconds of a lease, and the command's arguments.
_SCRIPT = Script("""
local COMMAND, LEASE = ARGV[1], tonumber(ARGV[2])
local RESERVED, LEAST_PAUSE, LONGEST_PAUSE, KEPT = 2, 0.5, 60, 24 * 3600
local COUNT = #KEYS / 3
local time = redis.call('TIME')
local NOW = time[1] + time[2] / 1e6

local function held(n) return KEYS[3 * n - 2] end
local function alone(n) return KEYS[3 * n - 1] end
local function paused(n) return KEYS[3 * n] end
local function milliseconds(seconds) return math.ceil(1000 * seconds) end

local function hold(n, permit)
  redis.call('ZADD', held(n), NOW + LEASE, permit)
  redis.call('EXPIRE', held(n), KEPT)
  if redis.call('GET', alone(n)) == permit then
    redis.call('PEXPIRE', alone(n), milliseconds(LEASE))
  end
end

local function leave(n, permit)
  if redis.call('GET', alone(n)) == permit then redis.call('DEL', alone(n)) end
  return redis.call('ZREM', held(n), permit) == 1
end

local function pause(n, seconds)
  local wanted = milliseconds(math.max(LEAST_PAUSE, math.min(seconds, LONGEST_PAUSE)))
  if redis.call('PTTL', paused(n)) < wanted then redis.call('SET', paused(n), 1, 'PX', wanted) end
end

local commands = {}

-- ask PERMIT EXCLUSIVE ONLY AVOID CAP... -> the number of its sandbox, or 0. Idempotent.
function commands.ask(permit, exclusive, only, avoid, ...)
  local caps, open, others_open = { ... }, {}, false
  for n = 1, COUNT do
    redis.call('ZREMRANGEBYSCORE', held(n), '-inf', NOW)
    if redis.call('ZSCORE', held(n), permit) then return n end
    open[n] = redis.call('EXISTS', paused(n)) == 0
    others_open = others_open or open[n] and n ~= tonumber(avoid)
  end
  local best, least
  for i = 1, COUNT do
    local n = (math.floor(NOW * 1e6) + i) % COUNT + 1 -- ties take turns
    local reserved, used = redis.call('GET', alone(n)), redis.call('ZCARD', held(n))
    local share = reserved == permit and -1 or used / caps[n]
    local wanted = only == '0' or tonumber(only) == n
    local avoided = only == '0' and others_open and n == tonumber(avoid)
    local free = open[n] and (not reserved or reserved == permit)
    if free and wanted and not avoided and (exclusive == '1' or share < 1)
      and (not best or share < least) then
      best, least = n, share
    end
  end
  if not best then return 0 end
  if exclusive == '1' then
    redis.call('SET', alone(best), permit, 'PX', milliseconds(RESERVED))
    if redis.call('ZCARD', held(best)) > 0 then return 0 end
  end
  hold(best, permit)
  return best
end

-- renew (SANDBOX PERMIT)...
function commands.renew(...)
  local pairs_ = { ... }
  for i = 1, #pairs_, 2 do hold(pairs_[i], pairs_[i + 1]) end
end

-- release SANDBOX PERMIT PAUSE: no effect after the permit expired.
function commands.release(n, permit, seconds)
  if leave(n, permit) and seconds ~= '' then pause(n, tonumber(seconds)) end
end

-- withdraw PERMIT: of a waiter, which may have been granted it.
function commands.withdraw(permit)
  for n = 1, COUNT do leave(n, permit) end
end

-- used -> permits held of each sandbox.
function commands.used()
  local used = {}
  for n = 1, COUNT do used[n] = redis.call('ZCOUNT', held(n), NOW, '+inf') end
  return used
end

return commands[COMMAND](unpack(ARGV, 3))
""")


class Permit:
    """The right to have one program run by the sandbox at ``url``."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self.paused: float | None = None

    def pause(self, seconds: float) -> None:
        """Pause the sandbox for all processes when the permit is given back."""
        self.paused = seconds


class SandboxPool:
    """Shares sandboxes among all processes that use the same Redis and the same URLs.

    Args:
        commands: Connection to Redis; the caller closes it, after the pool.
        urls: The sandboxes. Pools with the same URLs share their permits.
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
        self.urls = tuple(urls)
        self._commands = commands
        self._holder = holder
        self._sorted = sorted(set(urls))
        self._max_concurrency = max_concurrency
        self._caps = dict.fromkeys(self._sorted, max_concurrency)
        self._lease = lease
        pool = hashlib.sha256("\n".join(self._sorted).encode()).hexdigest()[:16]
        names = ("held", "alone", "paused")
        self._keys = tuple(
            f"plumbline:permits:{pool}:{name}:{url}" for url in self._sorted for name in names
        )
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
            avoid: URL of a sandbox to use only if all others are paused.
            only: URL of the one sandbox to use; ``avoid`` then has no effect.

        Raises:
            ServiceError: Redis is still unavailable after all retries.
        """
        permit = await self._acquire(exclusive, avoid, only)
        try:
            yield permit
        finally:
            await asyncio.shield(self._start(self._release(permit)))

    async def used(self) -> dict[str, int]:
        """Return how many permits of each sandbox are held."""
        return dict(zip(self._sorted, await self._run("used"), strict=True))

    async def close(self) -> None:
        """Stop renewing, and wait until the permits of cancelled tasks are released."""
        if self._renewal is not None:
            self._renewal.cancel()
        await asyncio.gather(*self._unfinished, return_exceptions=True)

    async def _acquire(self, exclusive: bool, avoid: str | None, only: str | None) -> Permit:
        name = f"{self._holder}:{uuid.uuid4().hex}"
        while True:
            asking = self._start(self._ask(name, exclusive, avoid, only))
            try:
                url = await asyncio.shield(asking)
                if url is not None:
                    return self._hold(Permit(name, url))
                await self._wait()
            except asyncio.CancelledError:
                await asyncio.shield(self._start(self._withdraw(name, asking)))
                raise

    async def _ask(
        self, name: str, exclusive: bool, avoid: str | None, only: str | None
    ) -> str | None:
        places = [self._sorted.index(url) + 1 if url in self._caps else 0 for url in (only, avoid)]
        found = await self._run("ask", name, int(exclusive), *places, *self._caps.values())
        return self._sorted[found - 1] if found else None

    async def _wait(self) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if urgent.get() else self._waiting.append)(woken)
        try:
            await asyncio.wait([woken], timeout=random.uniform(*_ASK_AGAIN))
        finally:
            if woken in self._waiting:
                self._waiting.remove(woken)

    async def _withdraw(self, name: str, asking: asyncio.Task[str | None]) -> None:
        await asyncio.wait([asking])  # it would be granted the permit after the withdrawal
        await self._run("withdraw", name)

    async def _release(self, permit: Permit) -> None:
        del self._held[permit.name]
        place = self._sorted.index(permit.url) + 1
        paused = "" if permit.paused is None else permit.paused
        await self._run("release", place, permit.name, paused)
        for _ in range(min(_WOKEN, len(self._waiting))):
            self._waiting.popleft().set_result(None)

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
        await asyncio.sleep(self._lease / 3)
        while self._held:
            held = [(self._sorted.index(url) + 1, name) for name, url in self._held.items()]
            try:
                await self._run("renew", *(part for pair in held for part in pair))
            except ServiceError as error:
                log.error("cannot renew permits", reason=str(error))
            await asyncio.sleep(self._lease / 3)

    async def _run(self, command: str, *args: str | float) -> Any:  # noqa: ANN401 - per command
        with _service_errors():
            return await self._commands.run(_SCRIPT, self._keys, [command, self._lease, *args])


@contextmanager
def _service_errors() -> Iterator[None]:
    try:
        yield
    except (RedisConnectionError, RedisTimeoutError) as error:
        raise ServiceError(f"sandbox permits are unavailable: Redis: {error}") from None
