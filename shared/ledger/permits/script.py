"""The commands of the Lua script, typed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.errors import ServiceError
from shared.ledger import keys
from shared.ledger.permits.settings import Outcome, PlaceState, PoolSettings
from shared.ledger.queue import text

_PARTS = ("clock", "places", "queue", "reports", "commands")
_SOURCE = "\n".join(
    resources.files(__package__).joinpath(f"{part}.lua").read_text() for part in _PARTS
)


@dataclass(frozen=True, slots=True)
class Wish:
    exclusive: bool
    avoid: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """``url`` is granted; or None, and to be asked for again ``ask_again`` seconds later."""

    url: str | None
    ticket: str = ""
    ask_again: float = 0.0


class PermitScript:
    """Speaks of sandboxes by URL; the script numbers them from 1."""

    def __init__(self, redis: Redis, urls: Sequence[str], settings: PoolSettings) -> None:
        self._redis = redis
        self._urls = sorted(set(urls))
        self._keys = keys.PermitKeys(keys.pool(self._urls))
        self._script = redis.register_script(_SOURCE)
        self._settings = json.dumps({**asdict(settings), "waiter_ttl": settings.waiter_ttl})

    async def ask(self, name: str, ticket: str, wish: Wish) -> Answer:
        """Ask for a permit, at first or again; ``ticket`` is what the first answer gave."""
        avoid = self._number(wish.avoid) if wish.avoid in self._urls else 0
        found = await self._run("ask", name, ticket, f"{'x' if wish.exclusive else '-'}{avoid}")
        if found[0] > 0:
            return Answer(self._urls[found[0] - 1])
        return Answer(None, text(found[1]), float(found[2]))

    async def woken(self, name: str, timeout: float) -> None:
        """Wait until there is reason to ask again."""
        with _service_errors():
            await self._redis.blpop([self._keys.wake(name)], timeout)

    async def renew(self, held: Mapping[str, str]) -> set[str]:
        """Keep permits, URLs by name. Returns the names of those that had expired."""
        pairs = [part for name, url in held.items() for part in (self._number(url), name)]
        return {text(name) for name in await self._run("renew", *pairs)}

    async def release(
        self, name: str, url: str, outcome: Outcome | None, retry_after: float
    ) -> None:
        await self._run("release", self._number(url), name, outcome or "", retry_after)

    async def withdraw(self, name: str) -> None:
        """Wait no longer, and give back what has been granted."""
        await self._run("withdraw", name)

    async def state(self) -> list[PlaceState]:
        found = [float(value) for value in await self._run("state")]
        rows = zip(*[iter(found)] * 5, strict=True)
        return [
            PlaceState(url, limit, int(in_use), int(waiting), ejected_for, paused_for)
            for url, (limit, in_use, waiting, ejected_for, paused_for) in zip(
                self._urls, rows, strict=True
            )
        ]

    def _number(self, url: str | None) -> int:
        return self._urls.index(url) + 1 if url else 0

    async def _run(self, command: str, *args: str | float) -> Any:  # noqa: ANN401 - per command
        each = [key for url in self._urls for key in (self._keys.held(url), self._keys.place(url))]
        shared = [self._keys.queue, self._keys.wishes, self._keys.heard, self._keys.clock]
        with _service_errors():
            return await self._script(
                keys=[*shared, *each], args=[command, self._settings, self._keys.wake(""), *args]
            )


@contextmanager
def _service_errors() -> Iterator[None]:
    try:
        yield
    except (RedisConnectionError, RedisTimeoutError) as error:
        raise ServiceError(f"no permits for the sandbox: Redis: {error}") from None
