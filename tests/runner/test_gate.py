"""Who is let through, and when."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from services.runner.gate import Gate
from services.runner.limit import ConcurrencyLimit


class Crowd:
    """Samples that want through a gate for two, and stay until they are sent on."""

    def __init__(self) -> None:
        self.pause = 0.0
        self.limit = ConcurrencyLimit(2)
        self.gate = Gate(self.limit, lambda: self.pause)
        self.inside: list[int] = []
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ends: dict[int, asyncio.Event] = {}

    def comes(self, turn: int) -> None:
        self._ends[turn] = asyncio.Event()
        self._tasks[turn] = asyncio.create_task(self._visit(turn))

    async def leaves(self, turn: int) -> None:
        self._ends[turn].set()
        await self._tasks[turn]
        await settled()

    def is_cancelled(self, turn: int) -> None:
        self._tasks[turn].cancel()

    async def end(self) -> None:
        for task in self._tasks.values():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self.gate.close()

    async def _visit(self, turn: int) -> None:
        async with self.gate.place(turn):
            self.inside.append(turn)
            try:
                await self._ends[turn].wait()
            finally:
                self.inside.remove(turn)


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    crowd = Crowd()
    yield crowd
    await crowd.end()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not reached():
            await asyncio.sleep(0.001)


async def test_no_more_than_the_limit_and_the_earliest_turn_first(crowd: Crowd) -> None:
    for turn in (5, 6, 9, 7):
        crowd.comes(turn)
        await settled()
    assert crowd.inside == [5, 6]
    await crowd.leaves(6)
    assert crowd.inside == [5, 7]
    await crowd.leaves(5)
    assert crowd.inside == [7, 9]


async def test_a_limit_that_was_cut_is_waited_down_to(crowd: Crowd) -> None:
    for turn in (1, 2, 3):
        crowd.comes(turn)
    await settled()
    crowd.gate.refused(crowd.gate.departs())
    assert crowd.limit.value == 1
    await crowd.leaves(1)
    assert crowd.inside == [2]
    await crowd.leaves(2)
    assert crowd.inside == [3]


async def test_an_answer_that_raises_the_limit_lets_the_next_one_in() -> None:
    crowd = Crowd()
    crowd.limit = ConcurrencyLimit(20)
    crowd.gate = Gate(crowd.limit, lambda: 0.0)
    for turn in range(20):
        crowd.comes(turn)
    await settled()
    assert len(crowd.inside) == 16
    crowd.gate.answered(crowd.gate.departs(), 1.0, 10)
    await settled()
    assert len(crowd.inside) == 17
    await crowd.end()


async def test_answers_while_nobody_waits_raise_nothing(crowd: Crowd) -> None:
    crowd.limit = ConcurrencyLimit(20)
    crowd.gate = Gate(crowd.limit, lambda: 0.0)
    crowd.comes(1)
    await settled()
    crowd.gate.answered(crowd.gate.departs(), 1.0, 10)
    assert crowd.limit.value == 16


async def test_during_a_pause_nobody_goes_and_then_all_that_may(crowd: Crowd) -> None:
    crowd.pause = 0.05
    for turn in (1, 2, 3):
        crowd.comes(turn)
    await settled()
    assert crowd.inside == []
    crowd.pause = 0.0
    await until(lambda: crowd.inside == [1, 2])


async def test_who_gives_up_waiting_leaves_no_hole(crowd: Crowd) -> None:
    for turn in (1, 2, 3, 4):
        crowd.comes(turn)
    await settled()
    crowd.is_cancelled(3)
    await settled()
    await crowd.leaves(1)
    assert crowd.inside == [2, 4]


async def test_a_place_that_came_too_late_goes_to_the_next() -> None:
    gate = Gate(ConcurrencyLimit(1), lambda: 0.0)

    async def visit() -> None:
        async with gate.place(2):
            raise AssertionError("it went away")

    async with gate.place(1):
        late = asyncio.create_task(visit())
        await settled()
    late.cancel()  # it has its place, and has not been woken
    with suppress(asyncio.CancelledError):
        await late
    async with asyncio.timeout(5), gate.place(3):
        pass
