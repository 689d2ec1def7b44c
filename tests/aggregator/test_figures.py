import random
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.aggregator.index.database import open_database
from services.aggregator.index.overview import (
    PERCENTS,
    IndexedRun,
    RunCache,
    dataset_figures,
    find_run,
)
from services.aggregator.index.rows import SampleRow
from services.aggregator.index.writer import IndexWriter
from shared.analysis.metrics import SampleResult, summarize
from shared.analysis.statistics import percentile
from shared.ledger import RunProgress
from shared.run_record import RunState
from shared.schemas import Generation, ProblemFacts, SampleId, Verdict
from shared.statuses import FinalStatus
from tests.aggregator.runs import put
from tests.shared.ledgers import generation, verdict

Pair = tuple[Verdict, Generation]


class Index:
    """An index of one run, to be filled with verdicts."""

    def __init__(self, folder: Path) -> None:
        self.database = open_database(folder)
        self._writer = IndexWriter(self.database)
        self._writer.add_run(RunProgress("r", "i", "running", "0", 0, 0), [])

    def add(self, pairs: list[Pair]) -> None:
        self.put([SampleRow.of(*one, ProblemFacts()) for one in pairs])

    def put(self, rows: list[SampleRow]) -> None:
        put(self.database, self._writer.runs()["r"], rows)

    def run(self, connection) -> IndexedRun:
        run = find_run(connection, "r")
        assert run is not None
        return run


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path)


def pair(chance: random.Random, number: int) -> Pair:
    tokens = chance.choice([None, chance.randrange(1000)])
    times = {"gen_time": chance.random(), "finished_at": 1000.0 + chance.randrange(500)}
    made = generation(SampleId("d1", f"p{number // 3}", number % 3), output_tokens=tokens, **times)
    status = chance.choice(list(FinalStatus))
    ratio = 1.0 if status is FinalStatus.SUCCESS else chance.choice([0.0, 0.05, 0.1, 0.55, 0.99])
    judged_at = 1000.0 + chance.randrange(800)
    spent = {"total_judge_time": chance.random() * 9, "judged_at": judged_at}
    left = {"cases_total": 8, "cases_not_run": chance.choice([0, 0, 4])}
    return verdict(made, status, pass_ratio=ratio, **left, **spent), made


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 101, 400])
def test_figures_are_those_of_the_formulas(index: Index, count: int) -> None:
    chance = random.Random(count)
    pairs = [pair(chance, number) for number in range(count)]
    index.add(pairs)
    with index.database.read() as connection:
        figures = dataset_figures(connection, index.run(connection), "d1")
    results = [SampleResult.of(*one) for one in pairs]
    summary = summarize(results, None)
    judged = [result for result in results if result.judged]
    assert figures.accepted_at_1 == summary["accepted_at_1"]
    assert figures.accepted_at_1_ci95 == summary["accepted_at_1_ci95"]
    assert figures.samples_cut == summary["samples_cut"]
    for name in ("output_tokens", "gen_time", "total_judge_time"):
        values = [value for one in judged if (value := getattr(one, name)) is not None]
        expected = [percentile(values, percent) for percent in PERCENTS]
        assert list(asdict(getattr(figures, name)).values()) == pytest.approx(expected)
    ratios = [one.pass_ratio for one in judged]
    counts = figures.pass_ratios
    assert (counts.zero, counts.one) == (ratios.count(0.0), ratios.count(1.0))
    assert counts.bins[0] == ratios.count(0.05)
    assert counts.bins[1] == ratios.count(0.1)
    assert counts.bins[9] == ratios.count(0.99)
    assert sum(counts.bins) + counts.zero + counts.one == len(judged) == figures.judged


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(FinalStatus), st.booleans()), max_size=30
    )
)
def test_the_tallies_are_what_counting_the_rows_gives(steps: list) -> None:
    with tempfile.TemporaryDirectory() as folder:
        index = Index(Path(folder))
        for number, status, accepted in steps:
            made = generation(SampleId("d1", f"p{number}"))
            row = SampleRow.of(verdict(made, status), made, ProblemFacts())
            index.put([row.model_copy(update={"accepted": accepted})])
        with index.database.read() as connection:
            run = index.run(connection)
            counted = connection.execute(
                "SELECT final_status, count(*), sum(accepted) FROM samples GROUP BY 1"
            ).fetchall()
        index.database.close()
    assert run.statuses.get("d1", {}) == {FinalStatus(status): n for status, n, _ in counted}
    assert run.accepted.get("d1", 0) == sum(good for *_, good in counted)


# Cache of values that are computed from all samples of a run


def test_a_value_is_two_seconds_old_in_a_running_run_and_never_in_a_finished_one(
    tmp_path: Path,
) -> None:
    database = open_database(tmp_path)
    IndexWriter(database).add_run(RunProgress("r", "i", "running", "0", 0, 0), [])
    now, calls = [100.0], iter(range(1, 9))
    cache = RunCache(lambda _connection, _run: next(calls), clock=lambda: now[0])
    with database.read() as connection:
        run = find_run(connection, "r")
        assert run is not None

        def value(version: int, state: RunState = RunState.RUNNING) -> int:
            return cache.of(connection, replace(run, version=version, state=state))

        assert value(1) == 1
        now[0] += 1.9
        assert value(2) == 1
        now[0] += 0.2
        assert value(2) == 2
        assert value(3, RunState.COMPLETE) == 3
        now[0] += 9
        assert value(3, RunState.COMPLETE) == 3
    database.close()
