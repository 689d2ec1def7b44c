"""Typed commands of the permit script, and its Redis keys, settings and results.

Each command is one Lua script, so it is atomic.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import resources
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.errors import ServiceError
from shared.ledger.pipelined import MERGED, RUN_COMMANDS, PipelinedRedis, Script

_SCRIPT = Script(
    "\n".join(
        resources.files(__package__).joinpath(f"{part}.lua").read_text()
        for part in ("sandboxes", "queue")
    )
    + RUN_COMMANDS
)


class CallOutcome(StrEnum):
    """Health of a sandbox as observed in one call.

    ``OK``: healthy; as many of them as the limit raise it by one. ``CONGESTED``: so slow that it is
    overloaded. ``REJECTED``: refused the request, possibly with a Retry-After. ``BROKEN``: sent no
    response. All except ``OK`` lower the sandbox's limit.
    """

    OK = "ok"
    CONGESTED = "congested"
    REJECTED = "rejected"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Limits and timings of a pool. Times are seconds.

    Attributes:
        max_concurrency: Upper bound of a sandbox's limit.
        initial: Limit of a sandbox before the first report.
        minimum: Lower bound of a limit; at least 1.
        lease_ttl: A permit expires this long after its holder's last heartbeat.
        ask_every: Polling interval of a waiter that is not woken; a waiter that misses three polls
            counts as dead.
        busy_share: A limit grows only while this share of it is in use, or the queue is not empty.
        decrease_factor: Factor by which a sign of overload multiplies the limit.
        decrease_window: Further signs of overload are ignored for this long after a decrease.
        eject_after: Failures in a row after which a sandbox is ejected.
        eject_base: Duration of the first ejection; each further one takes twice as long.
        eject_max: Longest ejection.
    """

    max_concurrency: int
    initial: int = 4
    minimum: int = 1
    lease_ttl: float = 10.0
    ask_every: float = 1.0
    busy_share: float = 0.75
    decrease_factor: float = 0.7
    decrease_window: float = 1.0
    eject_after: int = 3
    eject_base: float = 1.0
    eject_max: float = 60.0

    @property
    def waiter_ttl(self) -> float:
        return 3 * self.ask_every


@dataclass(frozen=True, slots=True)
class SandboxState:
    """Current state of one sandbox of a pool. Times are seconds.

    Attributes:
        limit: Concurrency limit; its fraction accumulates until the next whole permit.
        in_use: Permits held.
        waiting: Waiters of the whole pool: the same number for each of its sandboxes.
        ejected_for: Time until the ejection after broken connections ends.
        paused_for: Time until the pause requested by Retry-After ends.
    """

    url: str
    limit: float
    in_use: int
    waiting: int
    ejected_for: float
    paused_for: float


@dataclass(frozen=True, slots=True)
class PermitKeys:
    """Redis keys of one pool of sandboxes; the Lua script documents their values."""

    pool: str

    @classmethod
    def of(cls, urls: Sequence[str]) -> "PermitKeys":
        """Return the keys of the pool of ``urls``; their order does not matter."""
        return cls(hashlib.sha256("\n".join(sorted(urls)).encode()).hexdigest()[:16])

    @property
    def shared(self) -> list[str]:
        return [self._key(name) for name in ("queue", "wishes", "heard", "clock")]

    def of_sandbox(self, url: str) -> list[str]:
        return [self._key(f"held:{url}"), self._key(f"place:{url}")]

    def wake(self, waiter: str) -> str:
        """Return the key of the list whose push wakes a waiter."""
        return self._key(f"wake:{waiter}")

    def _key(self, name: str) -> str:
        return f"plumbline:permits:{self.pool}:{name}"


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """Request for one permit.

    Attributes:
        exclusive: Whether nothing else may run in the sandbox meanwhile.
        avoid: URL of a sandbox to use only as a last resort.
        only: URL of the only sandbox to use. Such a request goes before all others: there are few,
            and what they find is wanted early.
    """

    exclusive: bool
    avoid: str | None = None
    only: str | None = None


@dataclass(frozen=True, slots=True)
class PermitAnswer:
    """The granted sandbox; if ``url`` is None, ask again after ``ask_again`` seconds."""

    url: str | None
    ticket: str = ""
    ask_again: float = 0.0


class PermitScript:
    """Commands of the script, with sandboxes by URL; the Lua code numbers them from 1."""

    def __init__(
        self, redis: Redis, commands: PipelinedRedis, urls: Sequence[str], settings: PoolSettings
    ) -> None:
        self._redis = redis
        self._commands = commands
        self._urls = sorted(set(urls))
        self._keys = PermitKeys.of(self._urls)
        of_sandboxes = (key for url in self._urls for key in self._keys.of_sandbox(url))
        self._all_keys = (*self._keys.shared, *of_sandboxes)
        document = json.dumps({**asdict(settings), "waiter_ttl": settings.waiter_ttl})
        self._head = (MERGED, document, self._keys.wake(""))

    async def ask(self, name: str, ticket: str, request: PermitRequest) -> PermitAnswer:
        """Request a permit. Idempotent; ``ticket`` is from the first answer, initially empty."""
        wish = f"-{self._number(request.avoid) if request.avoid in self._urls else 0}"
        if request.only is not None:
            wish = f"={self._number(request.only)}"
        found = await self._run("ask", name, ticket, f"{'x' if request.exclusive else '-'}{wish}")
        if found[0] > 0:
            return PermitAnswer(self._urls[found[0] - 1])
        return PermitAnswer(None, _text(found[1]), float(found[2]))

    async def wait_for_wake(self, name: str, timeout: float) -> None:
        """Wait until the waiter is woken, at most ``timeout`` seconds."""
        with _service_errors():
            await self._redis.blpop([self._keys.wake(name)], timeout)

    async def renew(self, held: Mapping[str, str]) -> set[str]:
        """Renew permits (URL by name); return the names of the permits that have expired."""
        pairs = [part for name, url in held.items() for part in (self._number(url), name)]
        return {_text(name) for name in await self._run("renew", *pairs)}

    async def release(
        self, name: str, url: str, outcome: CallOutcome | None, retry_after: float
    ) -> None:
        await self._run("release", self._number(url), name, outcome or "", retry_after)

    async def withdraw(self, name: str) -> None:
        """Leave the queue, and release the permit if one was granted."""
        await self._run("withdraw", name)

    async def state(self) -> list[SandboxState]:
        found = [float(value) for value in await self._run("state")]
        rows = zip(*[iter(found)] * 5, strict=True)
        return [
            SandboxState(url, limit, int(in_use), int(waiting), ejected_for, paused_for)
            for url, (limit, in_use, waiting, ejected_for, paused_for) in zip(
                self._urls, rows, strict=True
            )
        ]

    def _number(self, url: str | None) -> int:
        return self._urls.index(url) + 1 if url else 0

    async def _run(self, command: str, *args: str | float) -> Any:  # noqa: ANN401 - per command
        with _service_errors():
            return await self._commands.run_merged(
                _SCRIPT, self._all_keys, self._common, command, *args
            )

    def _common(self) -> tuple[str, ...]:
        return self._head


@contextmanager
def _service_errors() -> Iterator[None]:
    try:
        yield
    except (RedisConnectionError, RedisTimeoutError) as error:
        raise ServiceError(f"sandbox permits are unavailable: Redis: {error}") from None


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
