"""Background tasks: ending them, and the pause between rounds of upkeep."""

import asyncio
from typing import Any

_AGAIN = 0.1
# Share of a core that upkeep may take, and the most seconds that it is put off for that.
_SHARE = 0.01
LONGEST_PAUSE = 30.0


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until all are done; their results and errors are left to the caller.

    Before Python 3.12 a Redis command may swallow a cancellation, so it is repeated.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN)


def pause_after(took: float, every: float) -> float:
    """Seconds until the next round of upkeep, whose cost grows with what is in flight.

    Args:
        took: Seconds of the last round.
        every: Seconds between rounds that cost little.
    """
    return max(every, min(LONGEST_PAUSE, took / _SHARE))
