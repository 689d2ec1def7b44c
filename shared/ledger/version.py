"""Version of the records in Redis, and the refusal of every other one.

All records have the version of the run record (``shared.run_record``), which is in
``plumbline:version`` with the release that wrote there first.
"""

from typing import cast

from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

from shared.errors import OutputError
from shared.ledger import keys
from shared.ledger.queue import live_workers
from shared.run_record import VERSION
from shared.service.logs import get_logger
from shared.versions import release

log = get_logger(__name__)

TROUBLE = "plumbline_trouble"
"""Field of a worker's hash: what its sandboxes do, while none of them answers."""

_ADVICE = "finish it with that release, or start over beside it (docs/operations.md, Upgrades)"


class OtherVersionError(OutputError):
    """Records in Redis have a version that this release does not read."""


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
    found = None if stored is None else stored.decode(errors="replace")
    if found not in (None, str(VERSION)):
        by = f", written by Plumbline {wrote.decode(errors='replace')[:100]}" if wrote else ""
        raise OtherVersionError(
            f"the ledger in Redis has version {str(found)[:100]}{by}, but this Plumbline "
            f"({release()}) reads version {VERSION}; {_ADVICE}"
        )


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


def troubles_of_judges(redis: Redis) -> list[str | None]:
    """What each RQ worker says of its judge's sandboxes, if none of them answers.

    Raises:
        RedisError: Redis is unavailable.
    """
    pipe = redis.pipeline(transaction=False)
    for key in live_workers(redis):
        pipe.hget(key, TROUBLE)
    return [trouble.decode(errors="replace") if trouble else None for trouble in pipe.execute()]
