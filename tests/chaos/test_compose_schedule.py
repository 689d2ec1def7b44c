"""Schedules of faults in containers: functions of their seed, with every fault and service."""

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.compose_schedule import AIMED, SERVICES, ContainerFault, session
from tests.chaos.schedule import QUIET, Session

SEEDS = st.integers(0, 2**31)
NUMBERS = st.integers(0, QUIET - 1)


@given(SEEDS, NUMBERS, st.booleans())
def test_the_same_seed_draws_the_same_faults(seed: int, number: int, dense: bool) -> None:
    drawn = session(seed, number, set(ContainerFault), dense=dense)
    assert drawn == session(seed, number, list(ContainerFault), dense=dense)


@given(SEEDS, NUMBERS, st.sets(st.sampled_from(list(ContainerFault))))
def test_only_the_wanted_kinds_are_drawn_in_order_of_time(
    seed: int, number: int, kinds: set[ContainerFault]
) -> None:
    drawn = session(seed, number, kinds)
    times = [fault.at for fault in drawn.faults]
    assert times == sorted(times)
    assert {fault.kind for fault in drawn.faults} <= kinds


@given(SEEDS, st.integers(QUIET, 100))
def test_every_round_ends_with_sessions_without_faults(seed: int, number: int) -> None:
    assert session(seed, number, ContainerFault) == Session()


def test_every_fault_meets_every_service() -> None:
    drawn = [fault for seed in range(200) for fault in session(seed, 0, ContainerFault).faults]
    met = {(fault.kind, fault.victim) for fault in drawn if fault.victim}
    assert met == {(kind, victim) for kind in AIMED for victim in SERVICES}
    assert {fault.kind for fault in drawn} == set(ContainerFault)
