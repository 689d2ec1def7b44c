"""Version of the records in Redis: what this release reads, and how it refuses the others.

Runs, completions, verdicts and jobs have the version of the run record (``shared.run_record``). A
release writes its own version and also reads the one before. The number is in two places: in each
run's and reward session's meta data, and in ``plumbline:version`` the largest one that any release
has written there. Releases before the number wrote version 2, or 1 with other states.
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

READABLE = (VERSION - 1, VERSION)
FIELD = "version"
"""Field of meta data with the version, as JSON."""
WITHOUT_NUMBER = 2
"""Version of meta data that have no number."""
PUT_BACK = "plumbline_put_back"
"""Field of a worker's hash: the latest reason why it returned a job to the queue, as JSON."""

_MAX_REASON = 1000
_ADVICE = (
    "upgrade this one to the release that wrote it (docs/operations.md, Upgrades and rollback)"
)
_MIGRATE = "open it with the release before this one first, which brings it to the next version"


class OtherVersionError(OutputError):
    """Records in Redis have a version that this release does not read."""


def refusal(what: str, version: object, wrote: str = "") -> str:
    """The message that refuses ``what``, with both versions and what to do."""
    by = f", written by Plumbline {wrote}" if wrote else ""
    older = isinstance(version, int) and version < READABLE[0]
    return (
        f"{what} has version {version!r}{by}, but this Plumbline ({release()}) reads versions "
        f"{READABLE[0]} and {READABLE[1]}; {_MIGRATE if older else _ADVICE}"
    )


def version_of(stored: bytes | str | None) -> object:
    """Version in the field ``version`` of meta data, as far as it can be read."""
    if stored is None:
        return WITHOUT_NUMBER
    try:
        return json.loads(stored)
    except (ValueError, RecursionError):
        text = stored if isinstance(stored, str) else stored.decode(errors="replace")
        return text[:100]


def is_readable(version: object) -> bool:
    """Whether this release reads meta data of a version."""
    return type(version) is int and version in READABLE


def check_run(run: str, version: object) -> None:
    """Check the version of a run's meta data.

    Raises:
        OtherVersionError: This release does not read it.
    """
    if not is_readable(version):
        raise OtherVersionError(refusal(f"run {run} in Redis", version))


def check_ledger(redis: Redis) -> None:
    """Check the version of the whole ledger, as each service does when it starts.

    Raises:
        OtherVersionError: As :func:`records_version`.
    """
    records_version(redis)


def records_version(redis: Redis) -> int:
    """The version of the whole ledger, which is one that this release reads.

    Raises:
        OtherVersionError: A later release has written to this ledger, or one that is too old.
    """
    try:
        stored, wrote = cast(list[bytes | None], redis.hmget(keys.VERSION, ["records", "release"]))
    except NoPermissionError as error:
        log.warning("the version of the ledger cannot be read", reason=str(error))
        return WITHOUT_NUMBER
    except ResponseError as error:
        raise OtherVersionError(
            f"{keys.VERSION} in Redis cannot be read ({error}); something else than Plumbline "
            "wrote it: delete the key"
        ) from None
    version = version_of(stored)
    if not is_readable(version):
        by = (wrote or b"").decode(errors="replace")[:100]
        raise OtherVersionError(refusal("the ledger in Redis", version, by))
    return cast(int, version)


def claim_ledger(redis: Redis) -> None:
    """Record that this release writes to the ledger; it never lowers the version.

    Raises:
        OtherVersionError: As :func:`check_ledger`.
    """
    check_ledger(redis)
    try:
        if redis.hget(keys.VERSION, "records") != str(VERSION).encode():
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


def put_back_reasons(redis: Redis, run: str | None = None, *, within: float = 30.0) -> list[str]:
    """Why judges returned jobs of a run, or of any, to the queue in the last ``within`` seconds."""
    try:
        workers = cast(set[bytes], redis.smembers(WORKERS_BY_QUEUE_KEY % keys.JUDGE_QUEUE))
    except NoPermissionError:  # users of Redis of an earlier release: judges log it too
        return []
    pipe = redis.pipeline(transaction=False)
    for key in sorted(workers):
        if key.startswith(BaseWorker.redis_worker_namespace_prefix.encode()):
            pipe.hget(key, PUT_BACK)
    reasons = set()
    for stored in pipe.execute(raise_on_error=False):
        try:
            note = json.loads(stored or "{}")
            if run in (None, note.get("run")) and time.time() - note["at"] <= within:
                reasons.add(str(note["reason"]))
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            continue  # an error of Redis, or something else than a worker wrote it
    return sorted(reasons)


def writer_of(redis: Redis, run: str) -> str:
    """The release that last wrote a run's meta data, as far as it is recorded; else ``unknown``."""
    stored = cast(
        list[bytes | None], redis.hmget(keys.RunKeys(run).meta, ["versions", "git_commit"])
    )
    try:
        versions, commit = (json.loads(one or "null") for one in stored)
        named = str((versions or {}).get("plumbline", "unknown"))[:100]
        return f"{named}, commit {str(commit)[:12]}" if commit else named
    except (ValueError, AttributeError, RecursionError):
        return "unknown"
