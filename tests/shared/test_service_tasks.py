"""Background tasks end when they are told to, whatever they swallow."""

import asyncio

from shared.service.processes import cancel_and_wait


async def test_a_swallowed_cancellation_is_repeated() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while swallowed < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
        await asyncio.Event().wait()

    async def ended() -> None:
        return

    tasks = [asyncio.create_task(stubborn()), asyncio.create_task(ended())]
    await tasks[1]
    await asyncio.sleep(0)
    await cancel_and_wait(*tasks)
    assert [task.cancelled() for task in tasks] == [True, False]
    assert swallowed == 2
