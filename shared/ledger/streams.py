"""Redis streams of verdicts, and runs' progress."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from redis import Redis
from redis.exceptions import NoPermissionError, OutOfMemoryError, ReadOnlyError, ResponseError

from shared.ledger import keys
from shared.ledger.ledger import INCARNATION, VerdictEvent, entries, event_of, list_runs, text
from shared.run_record import RunState
from shared.service.logs import get_logger

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """An entry of a stream; ``event`` is None if the entry cannot be parsed."""

    id: str
    event: VerdictEvent | None


def read_stream(redis: Redis, run: str, after: str, count: int = 500) -> list[StreamEntry]:
    """Read up to ``count`` entries of a run's stream after entry ``after``."""
    found = redis.xread({keys.RunKeys(run).events: after}, count=count)
    return [StreamEntry(entry, _parsed(entry, fields)) for entry, fields in entries(found)]


def entry_order(entry: str) -> tuple[int, int]:
    """Return the sort key of an entry id."""
    time, _, sequence = entry.partition("-")
    return int(time), int(sequence or 0)


def _parsed(entry: str, fields: dict[bytes, bytes]) -> VerdictEvent | None:
    try:
        return event_of(entry, fields)
    except (KeyError, ValueError):
        return None


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
        pipe.hmget(names.meta, [INCARNATION, "state"])
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
    incarnation, state = meta
    if incarnation is None:
        return None
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
