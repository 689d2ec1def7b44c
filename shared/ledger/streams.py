"""Redis streams of verdicts: a consumer group with at-least-once delivery, and runs' progress."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from redis import Redis
from redis.exceptions import NoPermissionError, OutOfMemoryError, ReadOnlyError, ResponseError

from shared.ledger import keys
from shared.ledger.ledger import INCARNATION, VerdictEvent, entries, event_of, list_runs
from shared.ledger.queue import text
from shared.ledger.version import FIELD, OtherVersionError, check_run
from shared.run_record import RunState
from shared.service.logs import get_logger

log = get_logger(__name__)

_PREFIX = "index:"
_CLAIM_BATCH = 1000


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """An entry of a stream; ``event`` is None if the entry cannot be parsed."""

    id: str
    event: VerdictEvent | None


class EventGroup:
    """Consumer group of one reader, which stores its own position in each stream.

    Delivery is at least once: reading resumes at the reader's stored position, not at the group's,
    so entries are delivered again if the reader crashed, or lost data that it had acknowledged. A
    reader that stores the position and the derived rows in one transaction processes each entry
    exactly once. Readers with different names each receive every entry.
    """

    def __init__(self, redis: Redis, name: str, consumer: str) -> None:
        self._redis = redis
        self._name = f"{_PREFIX}{name}"
        self._consumer = consumer

    def begin(self, run: str, after: str) -> bool:
        """Set the group's position to entry ``after`` and claim a crashed reader's entries.

        Returns:
            Whether the stream exists yet.
        """
        stream = keys.RunKeys(run).events
        try:
            self._redis.xgroup_create(stream, self._name, id=after)
        except ResponseError as error:
            # redis-py has no classes for these replies; their texts are part of Redis' protocol.
            if "requires the key to exist" in str(error):
                return False
            if "BUSYGROUP" not in str(error):
                raise
            self._redis.xgroup_setid(stream, self._name, id=after)
            self._claim_pending(stream, after)
        return True

    def read(self, run: str, after: str, count: int = 500) -> list[StreamEntry]:
        """Read up to ``count`` new entries; a group that was dropped resumes behind ``after``."""
        stream = keys.RunKeys(run).events
        try:
            found = self._read(stream, count)
        except ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            found = self._read(stream, count) if self.begin(run, after) else None
        return [StreamEntry(entry, _parsed(entry, fields)) for entry, fields in entries(found)]

    def ack(self, run: str, ids: Sequence[str]) -> None:
        """Acknowledge entries that the reader has stored."""
        if ids:
            self._redis.xack(keys.RunKeys(run).events, self._name, *ids)

    def pending(self, run: str) -> int:
        """Count the entries that were delivered and not acknowledged."""
        summary = self._redis.xpending(keys.RunKeys(run).events, self._name)
        return int(summary["pending"])

    def drop_abandoned(self, run: str, idle: float) -> None:
        """Destroy the groups of other readers that have not read for ``idle`` seconds.

        A reader that is still alive creates its group again.
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

    def _claim_pending(self, stream: str, after: str) -> None:
        """Claim all pending entries; acknowledge those up to the reader's stored position."""
        start, claimed = "0-0", _CLAIM_BATCH
        while claimed == _CLAIM_BATCH:
            found = self._redis.xautoclaim(
                stream, self._name, self._consumer, 0, start, _CLAIM_BATCH, justid=True
            )
            ids = [text(entry) for entry in cast(list[bytes], found)]
            if done := [entry for entry in ids if entry_order(entry) <= entry_order(after)]:
                self._redis.xack(stream, self._name, *done)
            claimed = len(ids)
            start = _successor(ids[-1]) if ids else start
        self._delete_other_consumers(stream)

    def _delete_other_consumers(self, stream: str) -> None:
        for consumer in self._redis.xinfo_consumers(stream, self._name):
            if text(consumer["name"]) != self._consumer:
                self._redis.xgroup_delconsumer(stream, self._name, text(consumer["name"]))


def entry_order(entry: str) -> tuple[int, int]:
    """Return the sort key of an entry id."""
    time, _, sequence = entry.partition("-")
    return int(time), int(sequence or 0)


def _parsed(entry: str, fields: dict[bytes, bytes]) -> VerdictEvent | None:
    try:
        return event_of(entry, fields)
    except (KeyError, ValueError):
        return None


def _successor(entry: str) -> str:
    """The smallest id after ``entry``, because XAUTOCLAIM has no exclusive start."""
    time, sequence = entry_order(entry)
    return f"{time}-{sequence + 1}"


# Progress of all runs


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Snapshot of a run's progress.

    Attributes:
        run: The run's id.
        incarnation: Changes when the run is deleted and created again.
        state: None before the runner has set it.
        last_event: Id of the newest entry in the run's stream; ``0`` for an empty stream.
        events: Entries in the stream.
        completions: Samples that have a completion.
    """

    run: str
    incarnation: str
    state: RunState | None
    last_event: str
    events: int
    completions: int


def runs_progress(redis: Redis) -> list[RunProgress]:
    """Read the progress of all runs, sorted by id, in two round trips.

    A run that is deleted at the same time is left out, as is one whose records cannot be read.
    """
    runs = list_runs(redis)
    pipe = redis.pipeline(transaction=False)
    for run in runs:
        names = keys.RunKeys(run)
        pipe.hmget(names.meta, [INCARNATION, "state", FIELD])
        pipe.xrevrange(names.events, count=1)
        pipe.xlen(names.events)
        pipe.hlen(names.hashes)
    replies = iter(pipe.execute(raise_on_error=False))
    found = [_readable_progress(redis, run, [next(replies) for _ in range(4)]) for run in runs]
    return [progress for progress in found if progress is not None]


def _readable_progress(redis: Redis, run: str, replies: list[Any]) -> RunProgress | None:
    try:
        if error := next((one for one in replies if isinstance(one, Exception)), None):
            raise error
        return _progress(redis, run, *replies)
    except OF_THE_SERVER:
        raise
    except OtherVersionError as error:
        report_unreadable(run, str(error))
        return None
    except UNREADABLE as error:
        report_unreadable(run, f"{type(error).__name__}: {str(error)[:200]}")
        return None


# What reading raises if something else than Plumbline wrote the records: keys of other types, text
# that is not UTF-8 or JSON, JSON of another shape or depth, numbers that SQLite or dates lack.
# These replies are about the server, whatever the run.
OF_THE_SERVER = (OutOfMemoryError, NoPermissionError, ReadOnlyError)
UNREADABLE = (
    *(ResponseError, ValueError, TypeError, LookupError, AttributeError),
    *(OverflowError, RecursionError),
)


@lru_cache(maxsize=1000)
def report_unreadable(run: str, reason: str) -> None:
    """Log that records of a run cannot be read, once for each run and reason."""
    log.error("a run's records in Redis cannot be read", run=run, reason=reason)


def _progress(
    redis: Redis,
    run: str,
    meta: list[bytes | None],
    newest: list[tuple[bytes, Any]],
    events: int,
    hashes: int,
) -> RunProgress | None:
    incarnation, state, version = meta
    if incarnation is None:
        return None
    check_run(run, version)
    return RunProgress(
        run=run,
        incarnation=str(json.loads(incarnation)),
        state=None if state is None else _state(run, json.loads(state)),
        last_event=text(newest[0][0]) if newest else "0",
        events=events,
        completions=hashes,
    )


def _state(run: str, stored: str) -> RunState | None:
    """Parse the state; an unknown one is None."""
    try:
        return RunState(stored)
    except ValueError as error:
        log.error("a run's state cannot be read", run=run, reason=str(error))
        return None
