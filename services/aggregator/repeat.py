"""Work that is repeated in a thread for as long as a service runs."""

import asyncio
import sqlite3
from collections.abc import Callable

from redis.exceptions import RedisError

from services.aggregator.index.database import is_damage
from shared.errors import ServiceError
from shared.service.logs import get_logger

log = get_logger(__name__)


async def repeat(work: Callable[[], object], interval: float) -> None:
    """Run ``work`` in a thread indefinitely, with a pause of ``interval`` seconds.

    The pause also follows work that found something: a hundred verdicts in one transaction cost
    little more than one.
    """
    while True:
        try:
            await asyncio.to_thread(work)
        except RedisError as error:
            log.error("Redis unavailable, retrying", reason=str(error))
        except sqlite3.OperationalError as error:
            log.error("the index cannot be written, retrying", reason=str(error))
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            raise ServiceError(
                f"the index is damaged ({error}); the next start builds it again, from Redis and "
                "from the folders of finished runs"
            ) from None
        await asyncio.sleep(interval)
