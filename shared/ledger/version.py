"""Version of the records in Redis, and the refusal of every other one.

Runs, completions, verdicts and jobs have the version of the run record (``shared.run_record``). The
number is in each run's and reward session's meta data, and in ``plumbline:version`` the largest one
that any release has written there.
"""

import json
import time
from typing import cast

from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError
from rq.worker import BaseWorker
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from shared.errors import OutputError
from shared.ledger import keys
from shared.run_record import VERSION
from shared.service.logs import get_logger
from shared.versions import release

log = get_logger(__name__)

FIELD = "version"
"""Field of meta data with the version, as JSON."""
PUT_BACK = "plumbline_put_back"
"""Field of a worker's hash: the latest reason why it returned a job to the queue, as JSON."""
TROUBLE = "plumbline_trouble"
"""Field of a worker's hash: what its sandboxes do, while none of them answers."""

_MAX_REASON = 1000
_ADVICE = "finish it with that release, or start over beside it (docs/operations.md, Upgrades)"


class OtherVersionError(OutputError):
    """Records in Redis have a version that this release does not read."""


def check_run(run: str, stored: bytes | str | None) -> None:
    """Check the version in a run's meta data, as they are stored.

    Raises:
        OtherVersionError: This release does not read it.
    """
    _check(f"run {run} in Redis", stored)


def _check(what: str, stored: bytes | str | None, wrote: bytes | None = None) -> None:
    found = stored.decode(errors="replace") if isinstance(stored, bytes) else stored
    if found not in (None, str(VERSION)):  # without any there is no run yet, or no longer
        by = f", written by Plumbline {wrote.decode(errors='replace')[:100]}" if wrote else ""
        raise OtherVersionError(
            f"{what} has version {str(found)[:100]}{by}, but this Plumbline ({release()}) reads "
            f"version {VERSION}; {_ADVICE}"
        )


def check_ledger(redis: Redis) -> None:
    """Check the version of the whole ledger, as each service does when it starts.

    Raises:
        OtherVersionError: Another release has written to this ledger.
    """
    try:
        stored, wrote = cast(list[bytes | None], redis.hmget(keys.VERSION, ["records", "release"]))
    except NoPermissionError as error:
        log.warning("the version of the ledger cannot be read", reason=str(error))
        return
    except ResponseError as error:
        raise OtherVersionError(
            f"{keys.VERSION} in Redis cannot be read ({error}); something else than Plumbline "
            "wrote it: delete the key"
        ) from None
    _check("the ledger in Redis", stored, wrote)


def claim_ledger(redis: Redis) -> None:
    """Record that this release writes to the ledger.

    Raises:
        OtherVersionError: As :func:`check_ledger`.
    """
    check_ledger(redis)
    try:
        redis.hset(keys.VERSION, mapping={"records": VERSION, "release": release()})
    except NoPermissionError as error:
        log.warning("the version of the ledger cannot be written", reason=str(error))


def unreadable(what: str, error: Exception) -> OtherVersionError:
    """The error about records of a readable version that have what this release does not know."""
    return OtherVersionError(
        f"{what} cannot be read by this Plumbline ({release()}): {error}; another release wrote "
        f"it: {_ADVICE}"
    )


def put_back_note(run: str, reason: str) -> str:
    """The value of ``PUT_BACK``: why a worker returns jobs of a run to the queue."""
    return json.dumps({"run": run, "reason": reason[:_MAX_REASON], "at": time.time()})


def troubles_of_judges(redis: Redis) -> list[str | None]:
    """What each judge that is there says of its sandboxes, if none of them answers.

    Raises:
        RedisError: Redis is unavailable.
    """
    found = [fields for fields in _of_workers(redis, "last_heartbeat", TROUBLE) if fields[0]]
    return [trouble.decode(errors="replace") if trouble else None for _, trouble in found]


def _of_workers(redis: Redis, *fields: str) -> list[list[bytes | None]]:
    """Fields of the workers of the judging queue."""
    workers = cast(set[bytes], redis.smembers(WORKERS_BY_QUEUE_KEY % keys.JUDGE_QUEUE))
    pipe = redis.pipeline(transaction=False)
    for key in sorted(workers):
        if key.startswith(BaseWorker.redis_worker_namespace_prefix.encode()):
            pipe.hmget(key, *fields)
    # An error of Redis is about a key of another type.
    return [found for found in pipe.execute(raise_on_error=False) if isinstance(found, list)]


def put_back_reasons(redis: Redis, run: str | None = None, *, within: float = 30.0) -> list[str]:
    """Why judges returned jobs of a run, or of any, to the queue in the last ``within`` seconds."""
    try:
        notes = _of_workers(redis, PUT_BACK)
    except NoPermissionError:  # users of Redis of an earlier release: judges log it too
        return []
    reasons = set()
    for (stored,) in notes:
        try:
            note = json.loads(stored or "{}")
            if run in (None, note.get("run")) and time.time() - note["at"] <= within:
                reasons.add(str(note["reason"]))
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            continue  # something else than a worker wrote it
    return sorted(reasons)
