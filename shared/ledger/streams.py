"""Progress of all runs, and the order of entries in their streams."""

import json
from dataclasses import dataclass
from typing import Any

from redis import Redis

from shared.ledger import keys
from shared.ledger.ledger import INCARNATION, list_runs, text
from shared.run_record import RunState


def entry_order(entry: str) -> tuple[int, int]:
    """Return the sort key of an entry id."""
    time, _, sequence = entry.partition("-")
    return int(time), int(sequence or 0)


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
        locked: Whether a runner is at work on it.
    """

    run: str
    incarnation: str
    state: RunState | None
    last_event: str
    events: int
    completions: int
    locked: bool = False


def runs_progress(redis: Redis) -> list[RunProgress]:
    """Read the progress of all runs, sorted by id, in two round trips.

    A run that is deleted at the same time is left out.
    """
    runs = list_runs(redis)
    pipe = redis.pipeline(transaction=False)
    for run in runs:
        names = keys.RunKeys(run)
        pipe.hmget(names.meta, [INCARNATION, "state"])
        pipe.xrevrange(names.events, count=1)
        pipe.xlen(names.events)
        pipe.hlen(names.hashes)
        pipe.exists(names.lock)
    replies: list[Any] = pipe.execute()
    return [
        RunProgress(
            run=run,
            incarnation=str(json.loads(incarnation)),
            state=None if state is None else RunState(json.loads(state)),
            last_event=text(newest[0][0]) if newest else "0",
            events=events,
            completions=completions,
            locked=bool(locked),
        )
        for run, (incarnation, state), newest, events, completions, locked in zip(
            runs, *(replies[part::5] for part in range(5)), strict=True
        )
        if incarnation is not None
    ]
