"""Admission: the adaptive limit, the order, servers that take turns, and their pauses."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runner import admission as admissions
from services.runner.admission import Admission, Server
from tests.waiting import eventually


def limited(cap: int) -> Admission:
    return Admission([Server("http://a", 1.0)], cap)


# Limit


events = st.sampled_from(["on_success", "on_overload", "on_outage"])


@given(st.integers(1, 2000), st.lists(events, max_size=300))
def test_the_limit_stays_between_one_and_the_cap(cap: int, happens: list[str]) -> None:
    admission = limited(cap)
    assert 1 <= admission.limit <= min(cap, 16)
    for event in happens:
        before = admission.limit
        getattr(admission, event)()
        assert 1 <= admission.limit <= cap
        assert admission.limit >= before if event == "on_success" else admission.limit <= before


def steady(admission: Admission, rounds: int) -> list[int]:
    """The limit after each round, which is as many answers as the limit."""
    values = []
    for _ in range(rounds):
        for _ in range(admission.limit):
            admission.on_success()
        values.append(admission.limit)
    return values


def test_it_doubles_with_each_round_until_the_first_decrease_and_grows_by_steps_then() -> None:
    admission = limited(320)
    assert steady(admission, 5) == [32, 64, 128, 256, 320]
    admission.on_overload()
    assert admission.limit == 224
    assert 224 + 27 <= steady(admission, 3)[-1] <= 224 + 31
    admission.on_outage()
    assert admission.limit == 1
    assert steady(admission, 3) == [2, 4, 8]


# Order


class Crowd:
    """Samples with a limit of two; each stays admitted until it leaves."""

    def __init__(self) -> None:
        self.server = Server("http://a", 1.0)
        self.admission = Admission([self.server], 2)
        self.inside: list[int] = []
        self.ends: dict[int, asyncio.Event] = {}

    async def visit(self, turn: int) -> None:
        self.ends[turn] = asyncio.Event()
        async with self.admission.admit():
            self.inside.append(turn)
            await self.ends[turn].wait()
            self.inside.remove(turn)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_admits_up_to_the_limit_in_order_and_a_cancelled_waiter_takes_no_slot() -> None:
    crowd = Crowd()
    async with asyncio.TaskGroup() as group:
        tasks = {turn: group.create_task(crowd.visit(turn)) for turn in (5, 6, 8, 9, 7)}
        await settled()
        assert crowd.inside == [5, 6]
        tasks[8].cancel()
        crowd.ends[6].set()
        await settled()
        assert crowd.inside == [5, 9]
        crowd.ends[5].set()
        await settled()
        assert crowd.inside == [9, 7]
        for end in crowd.ends.values():
            end.set()


async def test_nobody_is_admitted_while_all_servers_are_busy() -> None:
    crowd = Crowd()
    crowd.server.pause(0.05)
    async with asyncio.TaskGroup() as group:
        for turn in (1, 2, 3):
            group.create_task(crowd.visit(turn))
        await settled()
        assert crowd.inside == []
        await eventually(lambda: crowd.inside == [1, 2])
        for end in crowd.ends.values():
            end.set()


# Servers


class Clock:
    now = 1.0

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(admissions, "time", clock)
    return clock


async def test_servers_take_turns_but_for_one_that_pauses(clock: Clock) -> None:
    servers = [Server(f"http://{name}", 1.0) for name in "abc"]
    admission = Admission(servers, 16)

    async def picked(count: int) -> list[str]:
        names = []
        for _ in range(count):
            async with admission.admit() as server:
                names.append(server.name)
        return names

    assert await picked(6) == ["a", "b", "c"] * 2
    servers[0].pause()
    assert await picked(3) == ["b", "c", "b"]
    assert admission.closed_for == 0
    clock.now += 1.0
    assert await picked(2) == ["a", "c"]


def test_the_pause_grows_with_failures_up_to_a_limit(clock: Clock) -> None:
    server = Server("http://a", 1.0)
    pauses = []
    for _ in range(6):
        assert server.pause()
        assert not server.pause()  # of another request that was on its way
        pauses.append(round(server.closed_for))
        clock.now += pauses[-1] + 0.1
    assert pauses == [1, 2, 4, 8, 10, 10]
    server.on_success()
    server.pause()
    assert round(server.closed_for) == 1


@pytest.mark.parametrize(("retry_after", "pause"), [(0.0, 0.05), (3.0, 3.0), (1e9, 1.0)])
def test_a_retry_after_is_respected_and_bounded(
    clock: Clock, retry_after: float, pause: float
) -> None:
    server = Server("http://a", 1.0)
    server.pause(retry_after)
    assert server.closed_for == pytest.approx(pause, abs=1e-3)
    assert server.refuses is (retry_after == 1e9)
