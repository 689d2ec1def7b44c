from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.aggregator.index.database import Database, open_database
from services.aggregator.index.overview import find_run
from services.aggregator.index.queries import SampleQuery
from services.aggregator.index.rows import SampleRow
from services.aggregator.index.samples import samples_page
from services.aggregator.index.writer import IndexWriter, KnownRun
from shared.ledger import RunProgress
from shared.schemas import ProblemFacts, SampleId
from shared.statuses import FinalStatus
from tests.aggregator.indexed import put
from tests.shared.ledgers import generation, verdict

SORTS = ("problem", "judged_at", "pass_ratio", "output_tokens", "gen_time", "total_judge_time")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    database = open_database(tmp_path_factory.mktemp("index"))
    yield database
    database.close()


class Filled:
    """A run in the index, filled by hand."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.writer = IndexWriter(database)
        for old in self.writer.runs().values():
            self.writer.drop_run(old)
        self.writer.add_run(RunProgress("run-1", "i", "running", "0", 0, 0), {})
        self.run: KnownRun = self.writer.runs()["run-1"]

    def add(self, *rows: SampleRow) -> None:
        put(self.database, self.run, rows)

    def pages(self, query: SampleQuery) -> Iterator[list[SampleRow]]:
        offset: int | None = 0
        while offset is not None:
            asked = query.model_copy(update={"offset": offset})
            with self.database.read() as connection:
                page = samples_page(connection, self.run.id, asked)
            yield page.samples
            offset = page.next


def sample(row: SampleRow) -> SampleId:
    return SampleId(row.dataset, row.problem_id, row.sample_index)


def row(number: int, value: float | None, ratio: float = 0.0) -> SampleRow:
    made = generation(
        SampleId("d1", f"p{number:04}"),
        output_tokens=None if value is None else int(value * 10),
        gen_time=value,
    )
    judged = verdict(
        made,
        FinalStatus.WRONG_ANSWER,
        pass_ratio=ratio,
        judged_at=value,
        total_judge_time=value or 0.0,
    )
    return SampleRow.of(judged, made, ProblemFacts())


VALUES = st.lists(st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0, 7.25])), max_size=25)


@settings(max_examples=40)
@given(values=VALUES, limit=st.integers(1, 7), sort=st.sampled_from(SORTS), down=st.booleans())
def test_pages_hold_every_sample_once_and_in_order(
    database: Database, values: list, limit: int, sort, down: bool
) -> None:
    filled = Filled(database)
    filled.add(*(row(number, value) for number, value in enumerate(values)))
    pages = list(filled.pages(SampleQuery(sort=sort, order="desc" if down else "asc", limit=limit)))
    found = [one for page in pages for one in page]
    assert sorted(map(sample, found)) == [SampleId("d1", f"p{n:04}") for n in range(len(values))]
    assert all(len(page) <= limit for page in pages)
    if sort != "problem":
        keys = [value if (value := getattr(one, sort)) is not None else -1 for one in found]
        assert keys == sorted(keys, reverse=down)


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(FinalStatus), st.booleans()), max_size=30
    )
)
def test_the_tallies_are_what_counting_the_rows_gives(database: Database, steps: list) -> None:
    filled = Filled(database)
    for number, status, accepted in steps:
        changed = {"final_status": status, "accepted": accepted}
        filled.add(row(number, 1.0).model_copy(update=changed))
    with database.read() as connection:
        run = find_run(connection, "run-1")
        counted = connection.execute(
            "SELECT final_status, count(*) FROM samples WHERE run_id = ? GROUP BY 1", (run.id,)
        ).fetchall()
        good = connection.execute(
            "SELECT sum(accepted) FROM samples WHERE run_id = ?", (run.id,)
        ).fetchone()[0]
    assert run.statuses.get("d1", {}) == {FinalStatus(status): n for status, n in counted}
    assert run.accepted.get("d1", 0) == (good or 0)
