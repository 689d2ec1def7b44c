"""Schedules are a function of their seed, and leave no kind of fault or process out."""

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.schedule import QUIET, SIGNALS, VICTIMS, Kind, Session, session

SEEDS = st.integers(0, 2**31)
NUMBERS = st.integers(0, QUIET - 1)


@given(SEEDS, NUMBERS)
def test_the_same_seed_draws_the_same_faults(seed: int, number: int) -> None:
    assert session(seed, number, set(Kind)) == session(seed, number, list(Kind))


def test_each_seed_and_each_session_draws_others() -> None:
    drawn = [session(seed, number, Kind) for seed in range(20) for number in range(QUIET)]
    assert len({str(one) for one in drawn}) == len(drawn)


@given(SEEDS, NUMBERS, st.sets(st.sampled_from(list(Kind))))
def test_only_the_wanted_kinds_are_drawn_in_order_of_time(
    seed: int, number: int, kinds: set[Kind]
) -> None:
    drawn = session(seed, number, kinds)
    times = [fault.at for fault in drawn.faults]
    assert times == sorted(times)
    assert {fault.kind for fault in drawn.faults} <= kinds


@given(SEEDS, st.integers(QUIET, 100))
def test_every_round_ends_with_sessions_without_faults(seed: int, number: int) -> None:
    assert session(seed, number, Kind) == Session()


def test_every_signal_meets_every_process() -> None:
    drawn = [fault for seed in range(200) for fault in session(seed, 0, Kind).faults]
    met = {(fault.kind, fault.victim) for fault in drawn if fault.kind in SIGNALS}
    assert met == {(kind, victim) for kind in SIGNALS for victim in VICTIMS}
    assert {fault.kind for fault in drawn} == set(Kind)
