"""Places of a judge process: how many at once, who comes first, and what a cancelled one leaves."""

import asyncio
from collections.abc import Sequence

from services.judge.places import Places, urgent


async def order_of(kinds: Sequence[str], places: int = 1) -> list[str]:
    """In which order completions are judged that wait while all places are taken."""
    judged: list[str] = []
    limit = Places(places)
    go = asyncio.Event()

    async def judge(kind: str) -> None:
        urgent.set(kind == "reward")
        async with limit.place():
            judged.append(kind)
            await go.wait()

    first = [asyncio.create_task(judge("first")) for _ in range(places)]
    waiting = []
    for kind in kinds:
        await asyncio.sleep(0)
        waiting.append(asyncio.create_task(judge(kind)))
    await asyncio.sleep(0)
    assert judged == ["first"] * places
    go.set()
    await asyncio.gather(*first, *waiting)
    return judged[places:]


async def test_rewards_come_first_and_every_fourth_place_is_an_evaluations() -> None:
    kinds = ["evaluation"] * 3 + ["reward"] * 6
    judged = await order_of(kinds)
    assert judged[:3] == ["reward"] * 3
    assert judged[3] == "evaluation"
    assert sorted(judged) == sorted(kinds)


async def test_evaluations_keep_their_order_without_rewards() -> None:
    assert await order_of(["a", "b", "c", "d", "e"], places=2) == ["a", "b", "c", "d", "e"]


async def test_no_more_than_the_places_are_judged_and_cancelled_ones_leave_theirs() -> None:
    limit, running, most = Places(3), 0, 0

    async def judge(number: int) -> None:
        nonlocal running, most
        urgent.set(number % 2 == 0)
        async with limit.place():
            running += 1
            most = max(most, running)
            try:
                await asyncio.sleep(0.001)
            finally:
                running -= 1

    tasks = [asyncio.create_task(judge(number)) for number in range(60)]
    for number, task in enumerate(tasks):
        if number % 5 == 0:
            task.cancel()
        await asyncio.sleep(0 if number % 3 else 0.0005)
        if number % 7 == 0:
            tasks[-number].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 3
    # All places are free again.
    async with asyncio.timeout(10), limit.place(), limit.place(), limit.place():
        pass
