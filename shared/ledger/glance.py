"""One look at all runs: how far each is, in two round trips however many there are."""

import json
from dataclasses import dataclass
from typing import Any

from redis import Redis

from shared.ledger import keys
from shared.ledger.ledger import INCARNATION, Ledger, list_runs
from shared.ledger.queue import text
from shared.run_record import RunState


@dataclass(frozen=True, slots=True)
class Glance:
    """What a run is at this moment.

    ``state`` is a ``RunState``, or None before the runner has said so. ``last_event`` is the id of
    the newest entry in its stream (``0`` where there is none), ``events`` how many entries it has,
    ``completions`` how many samples have a completion.
    """

    run: str
    incarnation: str
    state: RunState | None
    last_event: str
    events: int
    completions: int


def glances(redis: Redis) -> list[Glance]:
    """Look at every run in the ledger, sorted by id; one that goes away meanwhile is left out."""
    runs = list_runs(redis)
    pipe = redis.pipeline(transaction=False)
    for run in runs:
        names = keys.RunKeys(run)
        pipe.hmget(names.meta, [INCARNATION, "state"])
        pipe.xrevrange(names.events, count=1)
        pipe.xlen(names.events)
        pipe.hlen(names.hashes)
    answers = iter(pipe.execute())
    looks = [_glance(redis, run, *(next(answers) for _ in range(4))) for run in runs]
    return [look for look in looks if look is not None]


def _glance(
    redis: Redis,
    run: str,
    meta: list[bytes | None],
    newest: list[tuple[bytes, Any]],
    events: int,
    hashes: int,
) -> Glance | None:
    incarnation, state = meta
    if incarnation is None:
        return None
    return Glance(
        run=run,
        incarnation=str(json.loads(incarnation)),
        state=None if state is None else _state(redis, run, json.loads(state)),
        last_event=text(newest[0][0]) if newest else "0",
        events=events,
        completions=hashes,
    )


def _state(redis: Redis, run: str, stored: str) -> RunState | None:
    """The state; one that only an earlier version knew is migrated."""
    try:
        return RunState(stored)
    except ValueError:
        return Ledger(redis, run).state()
