"""Performance of runs from their index: series, totals, and times that cannot be right."""

import math
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.aggregator.index.database import open_database
from services.aggregator.index.overview import find_run
from services.aggregator.index.performance import BUCKETS, Performance, performance
from services.aggregator.index.rows import SampleRow
from services.aggregator.index.writer import IndexWriter
from shared.ledger import RunProgress
from shared.run_record import RunState
from shared.schemas import ProblemFacts, SampleId
from shared.statuses import FinalStatus
from tests.aggregator.runs import put
from tests.shared.ledgers import generation, verdict

BEGUN = 1_750_000_000.0


def row(number: int, **fields: Any) -> SampleRow:
    made = generation(SampleId("d", f"p{number}"))
    values = {
        "output_tokens": 100,
        "gen_time": 4.0,
        "total_judge_time": 1.0,
        "finished_at": BEGUN + 10 + number,
        "judged_at": BEGUN + 12 + number,
    }
    complete = SampleRow.of(verdict(made), made, ProblemFacts())
    return complete.model_copy(update={**values, **fields})


def found(
    rows: Sequence[SampleRow], state: RunState = RunState.COMPLETE, **facts: Any
) -> Performance:
    with closing(open_database()) as database:
        writer = IndexWriter(database)
        progress = RunProgress("r", "1", state, "0", len(rows), len(rows))
        put(database, run := writer.add_run(progress, []), rows)
        writer.set_facts(run, progress, facts)
        with database.read() as connection:
            indexed = find_run(connection, "r")
            assert indexed is not None
            return performance(connection, indexed)


def test_series_are_what_happens_in_each_bucket() -> None:
    rows = [row(number) for number in range(100)]
    rows[9] = row(9, final_status=FinalStatus.TIMEOUT)
    got = found(rows, started_at=BEGUN)
    assert got.start == BEGUN + 6 and got.width == 1.0 and got.notes == []
    assert got.in_flight[:5] == [1, 2, 3, 4, 4] and max(got.in_flight) == 4
    assert set(got.programs) == {0, 1}
    assert sum(got.tokens) == 100 * 100
    assert sum(got.generated) == sum(got.judged) == 100
    assert max(got.waiting) == 2 and got.waiting[-1] == 0
    assert sum(got.timeouts) == 1
    assert got.sentence.startswith("Generation was the slower part")


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
    series = (got.in_flight, got.tokens, got.programs, got.waiting, got.judged)
    assert all(math.isfinite(value) and value >= 0 for values in series for value in values)
    assert len(got.judged) <= BUCKETS
    assert got.sentence


def test_without_times_nothing_is_shown_but_said() -> None:
    got = found([row(1, finished_at=None, judged_at=None, gen_time=None)])
    assert got.start is None and got.judged == []
    assert got.notes[-1] == "No times of verdicts are known, so nothing is shown."
    assert found([]).notes == got.notes[-1:]


def test_completions_of_another_run_are_no_generation() -> None:
    rows = [row(number, finished_at=BEGUN - 90_000 + number) for number in range(20)]
    got = found(rows, started_at=BEGUN)
    assert got.in_flight == got.generated == []
    assert got.notes == ["20 completions were not generated while the run was at work."]
    assert "waited for judging alone" in got.sentence


def test_judging_that_goes_on_alone_is_the_slower_part() -> None:
    rows = [row(n, judged_at=BEGUN + 20 + 4 * n, total_judge_time=4.0) for n in range(50)]
    got = found(rows, started_at=BEGUN, sandbox={"concurrency": 1})
    assert got.slots == 1
    assert got.sentence.startswith("Judging was the slower part")
    assert "of the sandbox's 1 slots busy" in got.sentence
