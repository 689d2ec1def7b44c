"""Performance of runs from their index: series, totals, and times that cannot be right."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.aggregator.index.database import Database, open_database
from services.aggregator.index.overview import find_run
from services.aggregator.index.performance import (
    BUCKETS,
    Performance,
    performance,
)
from services.aggregator.index.rows import SampleRow
from services.aggregator.index.run_cache import RunCache
from services.aggregator.index.writer import IndexWriter
from shared.analysis.bottleneck import Part
from shared.ledger import RunProgress
from shared.run_record import RunState
from tests.aggregator.indexed import put

BEGUN = 1_750_000_000.0


def row(number: int, **fields: Any) -> SampleRow:
    values = {
        "dataset": "d",
        "problem_id": f"p{number}",
        "sample_index": 0,
        "completion_sha256": "0" * 64,
        "final_status": "success",
        "detail": None,
        "accepted": True,
        "pass_ratio": 1.0,
        "cases_passed": 1,
        "cases_total": 1,
        "cases_not_run": 0,
        "output_tokens": 100,
        "gen_time": 4.0,
        "total_judge_time": 1.0,
        "attempts": 1,
        "confirmed": 0,
        "flipped": 0,
        "replica": None,
        "worker": "w",
        "finished_at": BEGUN + 10 + number,
        "judged_at": BEGUN + 12 + number,
        "difficulty": "",
        "tags": [],
        "num_tests": 1,
        "prompt_length": 1,
        "finish_reason": "stop",
        "extraction": None,
        "cpu_time": None,
        "peak_memory": None,
        "failure": None,
        "failure_id": None,
        "stderr": None,
    }
    return SampleRow.model_validate({**values, **fields})


@contextmanager
def indexed(
    rows: Sequence[SampleRow], state: RunState = RunState.COMPLETE, **facts: Any
) -> Iterator[Database]:
    database = open_database()
    writer = IndexWriter(database)
    progress = RunProgress("r", "1", state, "0", len(rows), len(rows))
    writer.add_run(progress, {"d": (len(rows), len(rows))})
    run = writer.runs()["r"]
    put(database, run, rows)
    writer.set_facts(run, progress, facts)
    try:
        yield database
    finally:
        database.close()


def found(
    rows: Sequence[SampleRow], state: RunState = RunState.COMPLETE, **facts: Any
) -> Performance:
    with indexed(rows, state, **facts) as database, database.read() as connection:
        run = find_run(connection, "r")
        assert run is not None
        return performance(connection, run)


def overlap(spans: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    return sum(max(0.0, min(end, last) - max(begin, first)) for first, last in spans)


def test_series_are_what_overlaps_each_bucket() -> None:
    rows = [
        row(number, final_status="timeout" if number == 9 else "success") for number in range(100)
    ]
    got = found(rows, started_at=BEGUN)
    assert got.start == BEGUN + 6 and got.width == 1.0 and got.notes == []
    requests = [(BEGUN + 6 + n, BEGUN + 10 + n) for n in range(100)]
    programs = [(BEGUN + 11 + n, BEGUN + 12 + n) for n in range(100)]
    edges = [got.start + i for i in range(len(got.judged))]
    assert got.in_flight == pytest.approx([overlap(requests, at, at + 1) for at in edges], abs=1e-3)
    assert got.programs == pytest.approx([overlap(programs, at, at + 1) for at in edges], abs=1e-3)
    assert got.tokens == pytest.approx(
        [25 * overlap(requests, at, at + 1) for at in edges], abs=0.1
    )
    assert sum(got.generated) == sum(got.judged) == 100
    assert max(got.waiting) == 2 and got.waiting[-1] == 0
    assert (sum(got.timeouts), max(filter(None, got.workers))) == (1, 1)
    assert got.waits_for is Part.GENERATION


SECONDS = st.floats(0, 5000)
SPANS = st.lists(
    st.tuples(SECONDS, st.floats(0, 300), st.floats(0, 300), SECONDS), min_size=1, max_size=30
)


@settings(max_examples=15, deadline=None)
@given(SPANS)
def test_nothing_is_lost_between_the_buckets(
    spans: list[tuple[float, float, float, float]],
) -> None:
    rows = [
        row(
            number,
            finished_at=BEGUN + 1000 + at,
            gen_time=generating,
            total_judge_time=judging,
            judged_at=BEGUN + 1000 + at + judging + waited,
        )
        for number, (at, generating, judging, waited) in enumerate(spans)
    ]
    got = found(rows)
    assert len(got.judged) <= BUCKETS
    exact = {"abs": 0.01 * got.width * BUCKETS, "rel": 1e-3}
    assert sum(got.in_flight) * got.width == pytest.approx(sum(s[1] for s in spans), **exact)
    assert sum(got.programs) * got.width == pytest.approx(sum(s[2] for s in spans), **exact)
    assert sum(got.tokens) * got.width == pytest.approx(100 * len(spans), rel=0.05, abs=got.width)
    assert sum(got.generated) == sum(got.judged) == len(spans)
    assert min(got.waiting) >= 0 and got.waiting[-1] == 0


TIMES = (
    st.none()
    | st.sampled_from([-1e300, -1.0, 0.0, 1e12, 1e300, BEGUN - 1e9, BEGUN + 1e9])
    | (st.floats(BEGUN, BEGUN + 1000))
)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(TIMES, TIMES, st.none() | st.floats(-1e9, 1e300)), max_size=12),
    st.none() | st.sampled_from([-5.0, 0.0, BEGUN, BEGUN + 1e9]),
    st.sampled_from([RunState.RUNNING, RunState.COMPLETE]),
)
def test_clocks_that_jump_are_survived(
    samples: list[tuple[float | None, float | None, float | None]],
    begun: float | None,
    state: RunState,
) -> None:
    rows = [
        row(number, finished_at=made, judged_at=judged, gen_time=seconds)
        for number, (made, judged, seconds) in enumerate(samples)
    ]
    got = found(rows, state, started_at=begun, finished_at=begun)
    series = (got.in_flight, got.tokens, got.programs, got.waiting, got.workers, got.judged)
    known = [value for values in series for value in values if value is not None]
    assert all(math.isfinite(value) and value >= 0 for value in known)
    assert len(got.judged) <= BUCKETS
    assert got.sentence


def test_times_that_cannot_be_right_are_left_out_and_named() -> None:
    rows = [row(number) for number in range(50)]
    rows += [
        row(50, judged_at=BEGUN + 5e8),
        row(51, judged_at=-3.0),
        row(52, finished_at=BEGUN + 4e8),
    ]
    got = found(rows, started_at=BEGUN)
    assert len(got.judged) < 120
    assert got.notes == [
        "Of 1 samples no time of the verdict is known.",
        "Of 1 samples the time of the verdict cannot be right.",
        "Of 1 samples the time of the completion cannot be right.",
    ]


def test_without_times_nothing_is_shown_but_said() -> None:
    got = found([row(1, finished_at=None, judged_at=None, gen_time=None)])
    assert got.start is None and got.judged == []
    assert got.notes[-1] == "No times of verdicts are known, so nothing is shown."
    assert found([]).notes == got.notes[-1:]


def test_completions_of_another_run_are_no_generation() -> None:
    rows = [row(number, finished_at=BEGUN - 90_000 + number) for number in range(20)]
    got = found(rows, started_at=BEGUN)
    assert got.in_flight == got.generated == []
    assert got.notes == ["20 completions are older than the run, which did not generate them."]
    assert got.waits_for is Part.JUDGING


def test_judging_that_goes_on_alone_is_the_slower_part() -> None:
    rows = [row(n, judged_at=BEGUN + 20 + 4 * n, total_judge_time=4.0) for n in range(50)]
    got = found(rows, started_at=BEGUN, sandbox={"concurrency": 1})
    assert got.slots == 1
    assert got.waits_for is Part.JUDGING
    assert "of the sandbox's 1 slots busy" in got.sentence


def test_a_result_is_cached_until_something_changes() -> None:
    now = [0.0]
    cache = RunCache(performance, clock=lambda: now[0])
    with indexed([row(n) for n in range(5)]) as database, database.read() as connection:
        run = find_run(connection, "r")
        assert run is not None
        assert cache.of(connection, run) is cache.of(connection, run)
