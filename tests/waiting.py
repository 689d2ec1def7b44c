"""Waiting for what other processes, threads and tasks do."""

import asyncio
import inspect
import time
from collections.abc import Callable


def until(
    what: str,
    met: Callable[[], object],
    seconds: float = 60.0,
    *,
    every: float = 0.1,
    not_yet: tuple[type[Exception], ...] = (),
) -> float:
    """Wait until ``met()`` is true; errors of ``not_yet`` count as false.

    Returns:
        The seconds that it took.

    Raises:
        AssertionError: It was not true in so many seconds.
    """
    began = time.monotonic()
    while True:
        try:
            if met():
                return time.monotonic() - began
        except not_yet:
            pass
        assert time.monotonic() - began < seconds, f"not in {seconds:g} s: {what}"
        time.sleep(every)


async def eventually(met: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait beside other tasks until ``met()``, which may be a coroutine function's, is true."""
    async with asyncio.timeout(seconds):
        while True:
            result = met()
            if await result if inspect.isawaitable(result) else result:
                return
            await asyncio.sleep(0.005)
