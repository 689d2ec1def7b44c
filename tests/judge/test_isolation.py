"""Isolation of a suspect job from the others of its process."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from services.judge.isolation import Isolation


async def overlaps(jobs: list[tuple[bool, int]]) -> list[tuple[bool, int]]:
    """Run jobs (alone or not, turns of the event loop); how many ran beside each at most."""
    isolation = Isolation()
    running: set[int] = set()
    most = [0] * len(jobs)

    async def work(number: int, alone: bool, turns: int) -> None:
        async with isolation.admit(alone=alone):
            running.add(number)
            for each in running:
                most[each] = max(most[each], len(running) - 1)
            for _ in range(turns):
                await asyncio.sleep(0)
            running.remove(number)

    async with asyncio.timeout(30):
        await asyncio.gather(*(work(n, alone, turns) for n, (alone, turns) in enumerate(jobs)))
    assert not isolation.closed
    return [(alone, beside) for (alone, _), beside in zip(jobs, most, strict=True)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=20))
def test_a_job_that_must_be_alone_is(jobs: list[tuple[bool, int]]) -> None:
    found = asyncio.run(overlaps(jobs))
    assert {beside for alone, beside in found if alone} <= {0}


def test_other_jobs_run_together() -> None:
    assert asyncio.run(overlaps([(False, 3)] * 16)) == [(False, 15)] * 16


async def test_a_job_that_must_be_alone_goes_before_later_ones() -> None:
    isolation = Isolation()
    order: list[str] = []

    async def work(name: str, alone: bool) -> None:
        async with isolation.admit(alone=alone):
            order.append(name)

    async with isolation.admit(alone=False):
        tasks = [asyncio.create_task(work("suspect", True))]
        await asyncio.sleep(0)
        assert isolation.closed
        tasks += [asyncio.create_task(work("late", False)) for _ in range(3)]
        await asyncio.sleep(0)
        assert order == []
    await asyncio.gather(*tasks)
    assert order == ["suspect", "late", "late", "late"]


async def test_a_cancelled_job_holds_nobody_up() -> None:
    isolation = Isolation()

    async def alone() -> None:
        async with isolation.admit(alone=True):
            await asyncio.sleep(60)

    async with isolation.admit(alone=False):
        waiting = asyncio.create_task(alone())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not isolation.closed
        async with isolation.admit(alone=False):
            pass
