"""The rule for requests in flight: what holds of it always, and where it ends beside a server."""

import heapq
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runner.limit import ConcurrencyLimit

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
        limit.cut(limit.cuts - int(str(event[1])))
    else:
        _, load, seconds, tokens, awaited = event
        limit.answered(load=load, seconds=seconds, tokens=tokens, awaited=awaited)  # type: ignore[arg-type]


def steady(limit: ConcurrencyLimit, rounds: int = 1, *, awaited: bool = True) -> None:
    """Rounds of answers of a server that never tires: each takes as long however many there are."""
    for _ in range(rounds):
        load = limit.value
        for _ in range(load):
            limit.answered(load=load, seconds=10.0, tokens=100, awaited=awaited)


@given(st.integers(1, 2000), st.lists(answers | cuts, max_size=300))
def test_whatever_comes_it_stays_between_one_and_the_cap(
    cap: int, events: list[tuple[object, ...]]
) -> None:
    limit = ConcurrencyLimit(cap)
    assert 1 <= limit.value <= min(cap, 16)
    for event in events:
        tell(limit, event)
        assert 1 <= limit.value <= cap


@given(st.integers(1, 2000), st.lists(answers | cuts, max_size=100))
def test_a_refusal_cuts_it_by_30_percent_once(cap: int, events: list[tuple[object, ...]]) -> None:
    limit = ConcurrencyLimit(cap)
    for event in events:
        tell(limit, event)
    before, departed = limit.value, limit.cuts
    limit.cut(departed)
    assert limit.value == 1 or limit.value <= 0.7 * (before + 1)
    assert limit.value >= int(0.7 * before)
    after = limit.value
    limit.cut(departed)  # somebody who was on the way at the same time
    assert limit.value == after


@given(st.integers(2, 2000), st.lists(answers, max_size=200))
def test_one_answer_adds_one_at_most(cap: int, events: list[tuple[object, ...]]) -> None:
    limit = ConcurrencyLimit(cap)
    for event in events:
        before = limit.value
        tell(limit, event)
        assert limit.value <= before + 1


def test_it_doubles_with_each_round_until_the_cap() -> None:
    limit = ConcurrencyLimit(100)
    values = [limit.value]
    for _ in range(4):
        steady(limit)
        values.append(limit.value)
    assert values == [16, 32, 64, 100, 100]


def test_after_the_first_trouble_it_grows_by_steps() -> None:
    limit = ConcurrencyLimit(320)
    steady(limit, 4)
    limit.cut(limit.cuts)
    low = limit.value
    steady(limit, 3)
    assert low + 27 <= limit.value <= low + 31
    for _ in range(20):
        limit.cut(limit.cuts)
    assert limit.value == 1
    steady(limit, 3)
    assert limit.value <= 4


def test_it_does_not_grow_while_nobody_waits() -> None:
    limit = ConcurrencyLimit(100)
    steady(limit, 10, awaited=False)
    assert limit.value == 16


def test_servers_that_do_not_count_tokens_are_given_more_until_they_refuse() -> None:
    limit = ConcurrencyLimit(64)
    for _ in range(200):
        limit.answered(load=limit.value, seconds=limit.value, tokens=None, awaited=True)
    assert limit.value == 64


class Server:
    """Answers up to ``capacity`` requests at once, the rest in the order of their arrival.

    ``slowed``: by what each further one at once makes a token take longer, in seconds.
    """

    def __init__(self, capacity: int, slowed: float = 0.0, refuses_at: int = 10**9) -> None:
        self.capacity = capacity
        self.slowed = slowed
        self.refuses_at = refuses_at

    def run(self, limit: ConcurrencyLimit, answered: int) -> list[int]:
        """The limit after each answer. Times are of a clock that only moves here."""
        chance = random.Random(1)
        now, values = 0.0, list[int]()
        ends: list[tuple[float, int, float, int, int]] = []
        places = [0.0] * self.capacity
        serial = 0
        while len(values) < answered:
            while len(ends) < limit.value:
                if len(ends) >= self.refuses_at:
                    limit.cut(limit.cuts)
                    break
                tokens = chance.randint(50, 450)
                at_once = min(len(ends) + 1, self.capacity)
                begins = max(now, heapq.heappop(places))
                end = begins + tokens * (0.01 + self.slowed * at_once)
                heapq.heappush(places, end)
                serial += 1
                heapq.heappush(ends, (end, serial, now, len(ends) + 1, tokens))
            now, _, began, load, tokens = heapq.heappop(ends)
            limit.answered(load=load, seconds=now - began, tokens=tokens, awaited=True)
            values.append(limit.value)
        return values


@pytest.mark.parametrize("capacity", [32, 64, 100, 145, 200, 300])
def test_a_full_server_is_kept_full_and_not_flooded(capacity: int) -> None:
    values = Server(capacity).run(ConcurrencyLimit(4096), 200 * capacity)
    late = values[len(values) // 2 :]
    assert 0.8 * capacity <= sum(late) / len(late) <= 2.5 * capacity
    assert max(late) <= 4 * capacity


def test_a_slow_server_is_not_flooded_either() -> None:
    late = Server(1).run(ConcurrencyLimit(4096), 2000)[1000:]
    assert max(late) < 128


def test_an_engine_that_gets_slower_and_yet_does_more_is_given_more() -> None:
    # At 1024 in flight a token takes six times as long as alone; all together are 170 times faster.
    values = Server(4096, slowed=0.00005).run(ConcurrencyLimit(1024), 20_000)
    assert sum(values[10_000:]) / 10_000 > 400


@pytest.mark.parametrize("places", [20, 100, 500])
def test_a_server_that_refuses_is_asked_just_below_that(places: int) -> None:
    values = Server(4096, refuses_at=places).run(ConcurrencyLimit(1024), 100 * places)
    late = values[len(values) // 2 :]
    assert 0.6 * places <= sum(late) / len(late) <= places
