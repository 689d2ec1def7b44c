"""Adaptive concurrency limit and admission gate."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runner.concurrency import AdmissionGate, ConcurrencyLimit

# Limit


events = st.sampled_from(["on_success", "on_overload", "on_outage"])


@given(st.integers(1, 2000), st.lists(events, max_size=300))
def test_the_limit_stays_between_one_and_the_cap(cap: int, happens: list[str]) -> None:
    limit = ConcurrencyLimit(cap)
    assert 1 <= limit.value <= min(cap, 16)
    for event in happens:
        before = limit.value
        getattr(limit, event)()
        assert 1 <= limit.value <= cap
        assert limit.value >= before if event == "on_success" else limit.value <= before


def steady(limit: ConcurrencyLimit, rounds: int) -> list[int]:
    """The limit after each round, which is as many answers as the limit."""
    values = []
    for _ in range(rounds):
        for _ in range(limit.value):
            limit.on_success()
        values.append(limit.value)
    return values


def test_it_doubles_with_each_round_until_the_first_decrease_and_grows_by_steps_then() -> None:
    limit = ConcurrencyLimit(320)
    assert steady(limit, 5) == [32, 64, 128, 256, 320]
    limit.on_overload()
    assert limit.value == 224
    assert 224 + 27 <= steady(limit, 3)[-1] <= 224 + 31
    limit.on_outage()
    assert limit.value == 1
    assert steady(limit, 3) == [2, 4, 8]


def test_it_settles_just_below_the_load_that_is_rejected() -> None:
    limit, places, values = ConcurrencyLimit(1024), 100, []
    for _ in range(2000):
        if limit.value > places:
            limit.on_overload()
        limit.on_success()
        values.append(limit.value)
    late = values[1000:]
    assert 0.6 * places <= sum(late) / len(late) <= places


# Admission gate


class Crowd:
    """Samples at a gate with a limit of two; each stays admitted until it leaves."""

    def __init__(self) -> None:
        self.pause = 0.0
        self.limit = ConcurrencyLimit(2)
        self.gate = AdmissionGate(self.limit, lambda: self.pause)
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
        async with self.gate.admit():
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


async def test_admits_up_to_the_limit_in_order(crowd: Crowd) -> None:
    for turn in (5, 6, 9, 7):
        crowd.comes(turn)
        await settled()
    assert crowd.inside == [5, 6]
    await crowd.leaves(6)
    assert crowd.inside == [5, 9]
    await crowd.leaves(5)
    assert crowd.inside == [9, 7]


async def test_nobody_is_admitted_while_all_servers_are_busy(crowd: Crowd) -> None:
    crowd.pause = 0.05
    for turn in (1, 2, 3):
        crowd.comes(turn)
    await settled()
    assert crowd.inside == []
    crowd.pause = 0.0
    await until(lambda: crowd.inside == [1, 2])


async def test_a_cancelled_waiter_takes_no_slot(crowd: Crowd) -> None:
    for turn in (1, 2, 3, 4):
        crowd.comes(turn)
    await settled()
    crowd.is_cancelled(3)
    await settled()
    await crowd.leaves(1)
    assert crowd.inside == [2, 4]


async def test_a_slot_of_a_cancelled_waiter_goes_to_the_next() -> None:
    gate = AdmissionGate(ConcurrencyLimit(1), lambda: 0.0)

    async def visit() -> None:
        async with gate.admit():
            raise AssertionError("it was cancelled")

    async with gate.admit():
        late = asyncio.create_task(visit())
        await settled()
    late.cancel()  # admitted, but its task has not run yet
    with suppress(asyncio.CancelledError):
        await late
    async with asyncio.timeout(5), gate.admit():
        pass
