"""Reading the streams of verdicts as a consumer group, with positions that the reader keeps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from redis import Redis
from redis.exceptions import ResponseError

from shared.ledger import keys
from shared.ledger.ledger import VerdictEvent, entries, event_of
from shared.ledger.queue import text

_PREFIX = "index:"
_CLAIMED = 1000


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """An entry of a stream; ``event`` is None where nobody can read it."""

    id: str
    event: VerdictEvent | None


class EventGroup:
    """The group of one reader, which keeps its position in each stream in a place of its own.

    That position, not Redis' opinion of it, says where reading goes on: what was delivered to a
    reader that died, or acknowledged by one whose disk then forgot it, is delivered again. Two
    readers at once need two names; each is told everything.
    """

    def __init__(self, redis: Redis, name: str, consumer: str) -> None:
        self._redis = redis
        self._name = f"{_PREFIX}{name}"
        self._consumer = consumer

    def begin(self, run: str, after: str) -> bool:
        """Put the group behind entry ``after`` and take over what a dead reader had.

        Returns:
            Whether there is a stream yet.
        """
        stream = keys.RunKeys(run).events
        try:
            self._redis.xgroup_create(stream, self._name, id=after)
        except ResponseError as error:
            if "requires the key to exist" in str(error):
                return False
            if "BUSYGROUP" not in str(error):
                raise
            self._redis.xgroup_setid(stream, self._name, id=after)
            self._take_over(stream, after)
        return True

    def read(self, run: str, after: str, count: int = 500) -> list[StreamEntry]:
        """Up to ``count`` new entries; ``after`` is where to go on if the group has vanished."""
        stream = keys.RunKeys(run).events
        try:
            found = self._read(stream, count)
        except ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            found = self._read(stream, count) if self.begin(run, after) else None
        return [StreamEntry(entry, _readable(entry, fields)) for entry, fields in entries(found)]

    def ack(self, run: str, ids: Sequence[str]) -> None:
        """Say that entries are kept safe."""
        if ids:
            self._redis.xack(keys.RunKeys(run).events, self._name, *ids)

    def pending(self, run: str) -> int:
        """How many entries were delivered and not acknowledged."""
        summary = self._redis.xpending(keys.RunKeys(run).events, self._name)
        return int(summary["pending"])

    def drop_abandoned(self, run: str, idle: float) -> None:
        """Remove the groups of readers that have not read for ``idle`` seconds.

        One that was only waiting finds its group gone and makes it anew.
        """
        stream = keys.RunKeys(run).events
        for group in self._redis.xinfo_groups(stream):
            name = text(group["name"])
            if not name.startswith(_PREFIX) or name == self._name:
                continue
            consumers = self._redis.xinfo_consumers(stream, name)
            if all(consumer["idle"] >= idle * 1000 for consumer in consumers):
                self._redis.xgroup_destroy(stream, name)

    def _read(self, stream: str, count: int) -> object:
        return self._redis.xreadgroup(self._name, self._consumer, {stream: ">"}, count=count)

    def _take_over(self, stream: str, after: str) -> None:
        """Claim all that is pending, and acknowledge what the position says is kept safe."""
        start, claimed = "0-0", _CLAIMED
        while claimed == _CLAIMED:
            found = self._redis.xautoclaim(
                stream, self._name, self._consumer, 0, start, _CLAIMED, justid=True
            )
            ids = [text(entry) for entry in cast(list[bytes], found)]
            if done := [entry for entry in ids if order(entry) <= order(after)]:
                self._redis.xack(stream, self._name, *done)
            claimed = len(ids)
            start = _behind(ids[-1]) if ids else start
        self._forget_others(stream)

    def _forget_others(self, stream: str) -> None:
        for consumer in self._redis.xinfo_consumers(stream, self._name):
            if text(consumer["name"]) != self._consumer:
                self._redis.xgroup_delconsumer(stream, self._name, text(consumer["name"]))


def order(entry: str) -> tuple[int, int]:
    """The id of an entry as something that sorts as the stream does."""
    time, _, sequence = entry.partition("-")
    return int(time), int(sequence or 0)


def _readable(entry: str, fields: dict[bytes, bytes]) -> VerdictEvent | None:
    try:
        return event_of(entry, fields)
    except (KeyError, ValueError):
        return None


def _behind(entry: str) -> str:
    """The smallest id after ``entry``: XAUTOCLAIM knows no exclusive start."""
    time, sequence = order(entry)
    return f"{time}-{sequence + 1}"
