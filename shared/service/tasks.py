"""Ending background tasks."""

import asyncio
from typing import Any

_AGAIN = 0.1


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until all are done; their results and errors are left to the caller.

    Before Python 3.12 a Redis command may swallow a cancellation, so it is repeated.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN)
