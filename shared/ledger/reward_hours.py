"""Record of what reward sessions answered, by hour: kept for months, and bounded.

Each process of the reward service writes totals of its own, so writing again changes nothing; a
reader adds those of all processes up. A process that is killed loses its last seconds.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from redis import Redis

from shared.ledger import keys
from shared.ledger.pipelined import Command, PipelinedRedis
from shared.ledger.queue import text
from shared.statuses import FinalStatus

HOUR = 3600
# Hours of a session that are kept, of all its processes together, and for how long after the last.
MOST_HOURS = 2000
_KEPT = 90 * 86_400
# Sessions, and hours of each, that are read: the latest ones. A change of protocol or code makes
# another session.
_MOST_SESSIONS, _READ_HOURS = 10, 500


class HourTotals(BaseModel):
    """Completions that one process answered in an hour.

    ``accepted`` counts judged ones, ``scored`` those whose rewards ``score`` adds up, ``guarded``
    those in which a guard of the judge stopped something, ``cached`` those with a remembered
    answer. ``judge_seconds`` is over all others.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    statuses: dict[FinalStatus, int] = Field(default_factory=dict)
    accepted: int = Field(default=0, ge=0)
    scored: int = Field(default=0, ge=0)
    score: float = 0.0
    guarded: int = Field(default=0, ge=0)
    cached: int = Field(default=0, ge=0)
    judge_seconds: float = Field(default=0.0, ge=0)

    def __add__(self, other: "HourTotals") -> "HourTotals":
        return HourTotals(
            statuses=dict(Counter(self.statuses) + Counter(other.statuses)),
            accepted=self.accepted + other.accepted,
            scored=self.scored + other.scored,
            score=self.score + other.score,
            guarded=self.guarded + other.guarded,
            cached=self.cached + other.cached,
            judge_seconds=self.judge_seconds + other.judge_seconds,
        )

    @property
    def answered(self) -> int:
        return sum(self.statuses.values())


@dataclass(slots=True)
class _Totals:
    """As :class:`HourTotals`, to count in."""

    statuses: dict[FinalStatus, int] = field(default_factory=dict)
    accepted: int = 0
    scored: int = 0
    score: float = 0.0
    guarded: int = 0
    cached: int = 0
    judge_seconds: float = 0.0

    def document(self) -> str:
        return HourTotals(**asdict(self)).model_dump_json()


@dataclass(frozen=True, slots=True)
class SessionHours:
    """A session: the Unix time of its last record, and totals by the Unix time of each hour."""

    session: str
    latest_at: float
    hours: Mapping[int, HourTotals] = field(default_factory=dict)


class RewardHours:
    """Totals of one process, which counts on its event loop and writes from time to time."""

    def __init__(
        self,
        commands: PipelinedRedis,
        session: str,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``session``: the id, ``reward/<16 hex digits>``."""
        self._commands = commands
        self._session = session
        self._key = keys.RewardKeys(session).hours
        self._now = now
        self._writer = uuid.uuid4().hex[:8]
        self._totals: dict[int, _Totals] = {}
        self._changed: set[int] = set()
        self._trimmed = -1

    def count(
        self,
        status: FinalStatus,
        *,
        accepted: bool,
        score: float | None,
        guarded: bool,
        judge_seconds: float | None,
    ) -> None:
        """Add an answer to the present hour.

        Args:
            status: Its status; ``api_error`` if it was not judged.
            accepted: Whether it was accepted.
            score: Its reward; None without one.
            guarded: Whether a guard of the judge stopped something.
            judge_seconds: Seconds of its cases; None if the answer was remembered.
        """
        hour = int(self._now()) // HOUR
        totals = self._totals.setdefault(hour, _Totals())
        totals.statuses[status] = totals.statuses.get(status, 0) + 1
        totals.accepted += accepted
        totals.guarded += guarded
        if score is not None:
            totals.scored += 1
            totals.score += score
        if judge_seconds is None:
            totals.cached += status is not FinalStatus.API_ERROR
        else:
            totals.judge_seconds += judge_seconds
        self._changed.add(hour)

    async def write(self) -> None:
        """Write the hours that have changed; if it fails, the next call writes them.

        Raises:
            RedisError: Redis is unavailable.
        """
        if not (hours := sorted(self._changed)):
            return
        commands: list[Command] = [
            ("HSET", self._key, f"{hour}:{self._writer}", self._totals[hour].document())
            for hour in hours
        ]
        commands += [
            ("EXPIRE", self._key, _KEPT),
            ("HSET", keys.REWARD_SESSIONS, self._session, int(self._now())),
            ("EXPIRE", keys.REWARD_SESSIONS, _KEPT),
        ]
        self._changed.clear()
        try:
            await self._commands.send(commands)
            if hours[-1] != self._trimmed:
                await self._trim()
                self._trimmed = hours[-1]
        except BaseException:
            self._changed.update(hours)
            raise
        for hour in [one for one in self._totals if one < hours[-1] and one not in self._changed]:
            del self._totals[hour]

    async def _trim(self) -> None:
        """Remove the earliest hours, and sessions of which nothing is left."""
        fields, sessions = await self._commands.send(
            [("HKEYS", self._key), ("HGETALL", keys.REWARD_SESSIONS)]
        )
        ordered = sorted(fields, key=_hour_of)
        old = {
            text(name)
            for name, at in _pairs(sessions)
            if not text(at).isdigit() or int(at) < self._now() - _KEPT
        }
        commands: list[Command] = []
        if len(ordered) > MOST_HOURS:
            commands.append(("HDEL", self._key, *ordered[: len(ordered) - MOST_HOURS]))
        if old:
            commands.append(("HDEL", keys.REWARD_SESSIONS, *sorted(old)))
        await self._commands.send(commands)


def reward_sessions(redis: "Redis") -> list[SessionHours]:
    """Read the latest recorded hours of the latest sessions, the latest one first.

    Raises:
        RedisError: Redis is unavailable.
    """
    found = cast(dict[bytes, bytes], redis.hgetall(keys.REWARD_SESSIONS))
    latest = sorted(
        (
            (int(at), text(name))
            for name, at in found.items()
            if at.isdigit() and keys.is_reward_run(text(name))
        ),
        reverse=True,
    )
    return [
        SessionHours(name, float(at), _hours(redis, name)) for at, name in latest[:_MOST_SESSIONS]
    ]


def _hours(redis: "Redis", session: str) -> dict[int, HourTotals]:
    stored = cast(dict[bytes, bytes], redis.hgetall(keys.RewardKeys(session).hours))
    hours: dict[int, HourTotals] = {}
    for name in sorted(stored, key=_hour_of):
        try:
            totals = HourTotals.model_validate_json(stored[name])
        except ValidationError:  # of another version
            continue
        start = _hour_of(name) * HOUR
        hours[start] = hours.get(start, HourTotals()) + totals
    return dict(list(hours.items())[-_READ_HOURS:])


def _hour_of(name: bytes) -> int:
    hour = name.partition(b":")[0]
    return int(hour) if hour.isdigit() and len(hour) < 12 else 0


def _pairs(found: object) -> list[tuple[bytes, bytes]]:
    """Fields and values of a reply, which is a mapping or, from a pipeline, a flat list."""
    if isinstance(found, dict):
        return list(found.items())
    flat = cast(list[bytes], found)
    return list(zip(flat[::2], flat[1::2], strict=True))
