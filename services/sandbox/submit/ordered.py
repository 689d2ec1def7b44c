"""Some things at once, their results in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def in_order(
    works: Iterable[Coroutine[Any, Any, Result]], limit: int
) -> AsyncGenerator[Result, None]:
    """The results in the order of ``works``, of which at most ``limit`` are under way.

    ``works`` is asked for no more than that ahead. Whatever is under way when the generator is
    closed is cancelled, and has ended when that returns.
    """
    running: deque[asyncio.Task[Result]] = deque()
    try:
        for work in works:
            running.append(asyncio.create_task(work))
            if len(running) == limit:
                yield await running[0]
                running.popleft()
        while running:
            yield await running[0]
            running.popleft()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
