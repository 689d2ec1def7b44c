"""Rows that tests write into an index by themselves."""

from collections.abc import Iterable

from services.aggregator.index.database import Database
from services.aggregator.index.rows import SampleRow
from services.aggregator.index.search import put_texts
from services.aggregator.index.writer import KnownRun, put_row


def put(
    database: Database, run: KnownRun, rows: Iterable[SampleRow | tuple[SampleRow, tuple[str, str]]]
) -> None:
    """Write rows, with their texts, as those of a run."""
    with database.write() as connection:
        for one in rows:
            row, texts = one if isinstance(one, tuple) else (one, ("", ""))
            put_texts(connection, put_row(connection, run.id, row), texts)
        connection.execute("UPDATE runs SET version = version + 1 WHERE id = ?", (run.id,))
