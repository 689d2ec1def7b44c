"""Adaptive concurrency limit: invariants, and convergence with simulated servers; the gate."""

import asyncio
import heapq
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runner.concurrency import AdmissionGate, ConcurrencyLimit

# Limit


answers = st.tuples(
    st.just("answer"),
    st.integers(1, 5000),
    st.floats(0, 1e6),
    st.none() | st.integers(0, 100_000),
    st.booleans(),
)
cuts = st.tuples(st.just("cut"), st.integers(0, 3))


def tell(limit: ConcurrencyLimit, event: tuple[object, ...]) -> None:
    if event[0] == "cut":
        limit.on_overload(limit.decreases - int(str(event[1])))
    else:
        _, load, seconds, tokens, queued = event
        limit.on_success(load=load, seconds=seconds, tokens=tokens, queued=queued)  # type: ignore[arg-type]


def steady(limit: ConcurrencyLimit, rounds: int = 1, *, queued: bool = True) -> None:
    """Rounds of answers of a server whose latency does not depend on the load."""
    for _ in range(rounds):
        load = limit.value
        for _ in range(load):
            limit.on_success(load=load, seconds=10.0, tokens=100, queued=queued)


@given(st.integers(1, 2000), st.lists(answers | cuts, max_size=300))
def test_the_limit_stays_between_one_and_the_cap(
    cap: int, events: list[tuple[object, ...]]
) -> None:
    limit = ConcurrencyLimit(cap)
    assert 1 <= limit.value <= min(cap, 16)
    for event in events:
        tell(limit, event)
        assert 1 <= limit.value <= cap


@given(st.integers(1, 2000), st.lists(answers | cuts, max_size=100))
def test_an_overload_decreases_it_by_30_percent_once(
    cap: int, events: list[tuple[object, ...]]
) -> None:
    limit = ConcurrencyLimit(cap)
    for event in events:
        tell(limit, event)
    before, departed = limit.value, limit.decreases
    limit.on_overload(departed)
    assert limit.value == 1 or limit.value <= 0.7 * (before + 1)
    assert limit.value >= int(0.7 * before)
    after = limit.value
    limit.on_overload(departed)  # another request in flight at the same time
    assert limit.value == after


def test_it_doubles_with_each_round_until_the_cap() -> None:
    limit = ConcurrencyLimit(100)
    values = [limit.value]
    for _ in range(4):
        steady(limit)
        values.append(limit.value)
    assert values == [16, 32, 64, 100, 100]


def test_after_the_first_decrease_it_grows_by_steps() -> None:
    limit = ConcurrencyLimit(320)
    steady(limit, 4)
    limit.on_overload(limit.decreases)
    low = limit.value
    steady(limit, 3)
    assert low + 27 <= limit.value <= low + 31
    for _ in range(20):
        limit.on_overload(limit.decreases)
    assert limit.value == 1
    steady(limit, 3)
    assert limit.value <= 4


class Server:
    """Serves up to ``capacity`` requests concurrently, the rest in the order of arrival.

    ``slowed``: seconds that each further concurrent request adds to a token.
    """

    def __init__(self, capacity: int, slowed: float = 0.0, rejects_at: int = 10**9) -> None:
        self.capacity = capacity
        self.slowed = slowed
        self.rejects_at = rejects_at

    def run(self, limit: ConcurrencyLimit, answered: int) -> list[int]:
        """The limit after each answer. Times are of a clock that only moves here."""
        chance = random.Random(1)
        now, values = 0.0, list[int]()
        ends: list[tuple[float, int, float, int, int]] = []
        places = [0.0] * self.capacity
        serial = 0
        while len(values) < answered:
            while len(ends) < limit.value:
                if len(ends) >= self.rejects_at:
                    limit.on_overload(limit.decreases)
                    break
                tokens = chance.randint(50, 450)
                at_once = min(len(ends) + 1, self.capacity)
                begins = max(now, heapq.heappop(places))
                end = begins + tokens * (0.01 + self.slowed * at_once)
                heapq.heappush(places, end)
                serial += 1
                heapq.heappush(ends, (end, serial, now, len(ends) + 1, tokens))
            now, _, began, load, tokens = heapq.heappop(ends)
            limit.on_success(load=load, seconds=now - began, tokens=tokens, queued=True)
            values.append(limit.value)
        return values


def few_and_nightly(few: list[int], more: list[int]) -> list[object]:
    return [*few, *(pytest.param(value, marks=pytest.mark.nightly) for value in more)]


@pytest.mark.parametrize("capacity", few_and_nightly([32, 100], [64, 145, 200, 300]))
def test_a_saturated_server_is_kept_full_and_not_flooded(capacity: int) -> None:
    values = Server(capacity).run(ConcurrencyLimit(4096), 200 * capacity)
    late = values[len(values) // 2 :]
    assert 0.8 * capacity <= sum(late) / len(late) <= 2.5 * capacity
    assert max(late) <= 4 * capacity


def test_an_engine_whose_throughput_grows_gets_more_requests() -> None:
    # At 1024 in flight a token takes six times as long as alone; all together are 170 times faster.
    values = Server(4096, slowed=0.00005).run(ConcurrencyLimit(1024), 20_000)
    assert sum(values[10_000:]) / 10_000 > 400


@pytest.mark.parametrize("places", few_and_nightly([20, 100], [500]))
def test_it_settles_just_below_the_load_that_is_rejected(places: int) -> None:
    values = Server(4096, rejects_at=places).run(ConcurrencyLimit(1024), 100 * places)
    late = values[len(values) // 2 :]
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
        async with self.gate.admit(turn):
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


async def test_admits_up_to_the_limit_and_the_lowest_turn_first(crowd: Crowd) -> None:
    for turn in (5, 6, 9, 7):
        crowd.comes(turn)
        await settled()
    assert crowd.inside == [5, 6]
    await crowd.leaves(6)
    assert crowd.inside == [5, 7]
    await crowd.leaves(5)
    assert crowd.inside == [7, 9]


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
        async with gate.admit(2):
            raise AssertionError("it was cancelled")

    async with gate.admit(1):
        late = asyncio.create_task(visit())
        await settled()
    late.cancel()  # admitted, but its task has not run yet
    with suppress(asyncio.CancelledError):
        await late
    async with asyncio.timeout(5), gate.admit(3):
        pass
