"""Version of the records in Redis, and the refusal of every other one.

All records have the version of the run record (``shared.run_record``), which is in
``plumbline:version`` with the release that wrote there first.
"""

from typing import cast

from redis import Redis
from redis.exceptions import ResponseError

from shared.errors import OutputError
from shared.ledger import keys
from shared.run_record import VERSION
from shared.versions import release


class OtherVersionError(OutputError):
    """Records in Redis have a version that this release does not read."""


def check_ledger(redis: Redis) -> None:
    """Check the version of the whole ledger, as each service does when it starts.

    Raises:
        OtherVersionError: Another release has written to this ledger.
    """
    try:
        stored, wrote = cast(list[bytes | None], redis.hmget(keys.VERSION, ["records", "release"]))
    except ResponseError as error:
        raise OtherVersionError(
            f"{keys.VERSION} in Redis cannot be read ({error}); if something else than Plumbline "
            "wrote it, delete the key"
        ) from None
    if stored not in (None, str(VERSION).encode()):
        by = f", written by Plumbline {wrote.decode(errors='replace')[:100]}" if wrote else ""
        raise OtherVersionError(
            f"the ledger in Redis has version {stored.decode(errors='replace')[:100]}{by}, but "
            f"this Plumbline ({release()}) reads version {VERSION}; finish it with that release, "
            "or start over beside it (docs/operations.md, Upgrades)"
        )


def claim_ledger(redis: Redis) -> None:
    """Record that this release writes to the ledger.

    Raises:
        OtherVersionError: As :func:`check_ledger`.
    """
    check_ledger(redis)
    redis.hset(keys.VERSION, mapping={"records": VERSION, "release": release()})
