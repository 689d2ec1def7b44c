"""Background tasks: work under watch, and the end of tasks."""

import asyncio
from collections.abc import Awaitable, Callable
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


async def with_watch(
    work: Callable[[], Awaitable[None]], watch: Callable[[], Awaitable[None]]
) -> None:
    """Run ``work`` until it ends, or until ``watch`` raises."""
    working, watching = asyncio.ensure_future(work()), asyncio.ensure_future(watch())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        await working
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
