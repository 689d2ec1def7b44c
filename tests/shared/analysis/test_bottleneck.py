import math
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shared.analysis.bottleneck import RunLoad, bottleneck

# Judging of 2 slots that began with the run and went on for 60 of its 100 seconds.
LATE = RunLoad(
    seconds=100.0,
    generated=400,
    generating_seconds=40.0,
    tokens_per_second=2000.0,
    in_flight=64.0,
    judged=400,
    sandbox_seconds=196.0,
    slots=2,
    busiest=2.0,
    most_waiting=240,
    tail_seconds=60.0,
    tail_programs=2.0,
)
AMOUNTS = st.just(0.0) | st.floats(1e-9, 1e9)
COUNTS = st.integers(0, 10**9)
LOADS = st.builds(
    RunLoad,
    seconds=AMOUNTS,
    generated=COUNTS,
    generating_seconds=AMOUNTS,
    tokens_per_second=st.none() | AMOUNTS,
    in_flight=AMOUNTS,
    judged=COUNTS,
    sandbox_seconds=AMOUNTS,
    slots=st.none() | st.integers(1, 10_000),
    busiest=AMOUNTS,
    most_waiting=COUNTS,
    tail_seconds=AMOUNTS,
    tail_programs=AMOUNTS,
    running=st.booleans(),
)


def test_a_run_whose_judges_were_busy_long_after_the_last_completion_needs_cores() -> None:
    bound = bottleneck(LATE)
    assert bound.startswith("Judging was the slower part")
    assert "98 % of the sandbox's 2 slots busy" in bound
    assert "up to 240 completions waited" in bound
    assert "judging went on for 1 min 0 s after the last completion" in bound
    # 10 completions/s of 0.49 s each, as docs/sizing.md computes it.
    assert "10 completions/s of 0.49 s each, judging needs 4.9 sandbox cores" in bound
    assert "Add sandbox cores" in bound


def test_a_run_whose_slots_were_free_at_the_end_does_not_need_cores() -> None:
    bound = bottleneck(replace(LATE, tail_programs=0.9))
    assert bound.startswith("Judging was the slower part")
    assert "0.9 of 2 slots were busy then" in bound
    assert "Add sandbox cores" not in bound


def test_a_run_that_ends_soon_after_its_last_completion_needs_replicas() -> None:
    load = replace(LATE, generating_seconds=98.0, tail_seconds=2.0, most_waiting=3)
    bound = bottleneck(load)
    assert bound.startswith("Generation was the slower part")
    assert "64 requests in flight gave 2,000 tokens/s" in bound
    assert "Add replicas of the model" in bound


def test_a_run_in_progress_waits_for_judging_if_what_waits_takes_long() -> None:
    bound = bottleneck(replace(LATE, running=True))
    assert bound.startswith("Judging is the slower part")
    assert "judging the waiting answers takes another 1 min 0 s" in bound


def test_a_run_without_times_says_that_nothing_can_be_told() -> None:
    assert bottleneck(RunLoad()).startswith("What the run waits for cannot be told")


@given(LOADS)
def test_every_load_has_a_sentence_of_numbers_that_are_ones(load: RunLoad) -> None:
    bound = bottleneck(load)
    assert bound.endswith(".")
    assert "\n" not in bound
    assert not re.search(r"\b(nan|inf)\b", bound)
    assert load.busy is None or 0 <= load.busy <= 1
    assert math.isfinite(load.needed_cores) and load.needed_processes >= 1


@given(LOADS.filter(lambda load: load.generating_seconds > 0), AMOUNTS)
def test_a_longer_tail_never_turns_judging_into_generation(load: RunLoad, more: float) -> None:
    if bottleneck(load).startswith("Judging"):
        longer = replace(load, tail_seconds=load.tail_seconds + more)
        assert bottleneck(longer).startswith("Judging")
