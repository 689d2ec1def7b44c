"""Rows that tests write into an index by themselves."""

from collections.abc import Iterable

from services.aggregator.index.database import Database
from services.aggregator.index.rows import SampleRow
from services.aggregator.index.search import SampleTexts
from services.aggregator.index.writer import IndexedSample, IndexWriter, KnownRun


def put(
    database: Database,
    run: KnownRun,
    rows: Iterable[SampleRow | tuple[SampleRow, SampleTexts]],
    *,
    searched: bool = True,
) -> None:
    """Write rows, with their texts, as those of a run."""
    writer = IndexWriter(database, searched=searched)
    with database.write() as connection:
        for one in rows:
            row, texts = one if isinstance(one, tuple) else (one, SampleTexts())
            writer._put(connection, run.id, IndexedSample(row, texts))
        connection.execute("UPDATE runs SET version = version + 1 WHERE id = ?", (run.id,))
