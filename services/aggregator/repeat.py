"""Work that is repeated in a thread for as long as a service runs."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress

from redis.exceptions import RedisError

from shared.service.logs import get_logger

log = get_logger(__name__)


async def repeat(
    work: Callable[[], object], interval: float, wake: asyncio.Event | None = None
) -> None:
    """Run ``work`` in a thread forever, with a pause of ``interval`` seconds or until ``wake``.

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
        wake = wake or asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(interval):
                await wake.wait()
        wake.clear()
