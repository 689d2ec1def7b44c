"""Samples of what a reward stack holds, over time, and how it grows."""

import re
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from redis import Redis
from redis.exceptions import RedisError

from tests.endurance.processes import Held, files, held

_MOST_POINTS = 400
# Parts of the names of keys that differ from one to the next.
_OWN = re.compile(r"[0-9a-f]{8,}|[0-9]+")


@dataclass(frozen=True, slots=True)
class RedisHeld:
    """What Redis holds: memory in MB, number of keys by kind, and of the members of some."""

    memory: float
    clients: int
    keys: dict[str, int]
    members: dict[str, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """What is held ``at`` seconds after the start; ``redis`` is None while it is away.

    ``temporary`` and ``state`` are number and bytes of files.
    """

    at: float
    processes: list[Held]
    redis: RedisHeld | None
    temporary: tuple[int, int]
    state: tuple[int, int]
    open_requests: int

    def document(self) -> dict[str, object]:
        return asdict(self)

    def of(self, name: str) -> list[Held]:
        return [one for one in self.processes if one.name == name]


@dataclass(frozen=True, slots=True)
class Stack:
    """What is sampled."""

    command: int
    redis: Redis
    temporary: Path
    state: Path

    def sample(self, began: float, open_requests: int) -> Sample:
        """Take a sample; ``began`` is on the monotonic clock."""
        return Sample(
            round(time.monotonic() - began, 1),
            held(self.command, time.time()),
            redis_held(self.redis),
            files(self.temporary),
            files(self.state),
            open_requests,
        )


def redis_held(redis: Redis) -> RedisHeld | None:
    try:
        info = cast(dict[str, int], redis.info())
        kinds: Counter[str] = Counter()
        members: Counter[str] = Counter()
        for key in redis.scan_iter(count=1000):
            kind = kind_of(key.decode(errors="replace"))
            kinds[kind] += 1
            if kind.startswith("plumbline:reward:*:") and ":answer:" not in kind:
                members[kind] += _members(redis, key)
        return RedisHeld(
            round(info["used_memory"] / 2**20, 2),
            info["connected_clients"],
            dict(sorted(kinds.items())),
            dict(sorted(members.items())),
        )
    except RedisError:
        return None


def _members(redis: Redis, key: bytes) -> int:
    counts = {b"hash": redis.hlen, b"zset": redis.zcard, b"stream": redis.xlen}
    count = counts.get(cast(bytes, redis.type(key)))
    return int(count(key)) if count else 0


def kind_of(key: str) -> str:
    """A key's name without what is its own."""
    for part in (
        ":answer:", ":request:", "rq:job:", "plumbline:lease:", "rq:worker:", "rq:execution",
    ):  # fmt: skip
        if part in key:
            key = key[: key.index(part) + len(part)] + "*"
    return _OWN.sub("*", key)


# Growth


def slope(points: Iterable[tuple[float, float]]) -> float:
    """Growth per hour of values over seconds: the median slope of all pairs (Theil-Sen)."""
    known = sorted(points)
    step = max(1, len(known) // _MOST_POINTS)
    kept = known[::step]
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for place, earlier in enumerate(kept)
        for later in kept[place + 1 :]
        if later[0] > earlier[0]
    ]
    return 3600 * statistics.median(slopes) if slopes else 0.0


def growth(samples: Sequence[Sample], pid: int) -> tuple[float, float]:
    """MB per hour by which a process grew after the first tenth, and its median MB."""
    after = samples[-1].at / 10
    points = [
        (sample.at, one.memory)
        for sample in samples
        for one in sample.processes
        if one.pid == pid and sample.at >= after
    ]
    return slope(points), statistics.median([memory for _, memory in points])


def redis_growth(samples: Sequence[Sample]) -> tuple[float, float]:
    """As :func:`growth`, of the memory that Redis uses for its data."""
    after = samples[-1].at / 10
    points = [
        (sample.at, sample.redis.memory)
        for sample in samples
        if sample.redis and sample.at >= after
    ]
    return slope(points), statistics.median([memory for _, memory in points])


def cpu_seconds(samples: Sequence[Sample]) -> dict[str, float]:
    """CPU seconds by name of all processes; of those that ended, up to their last sample."""
    latest: dict[int, Held] = {}
    for sample in samples:
        latest |= {one.pid: one for one in sample.processes}
    first = {one.pid: one.cpu for one in samples[0].processes}
    found: dict[str, float] = defaultdict(float)
    for pid, one in latest.items():
        found[one.name] += one.cpu - first.get(pid, 0.0)
    return dict(found)
