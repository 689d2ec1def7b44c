"""Writing the index: every change of it is one transaction."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.aggregator.index.counting import Change, Counting
from services.aggregator.index.database import Database
from services.aggregator.index.rows import COLUMNS, ProblemFacts, SampleRow
from shared.ledger import RunProgress, StreamEntry
from shared.ledger.streams import entry_order
from shared.schemas import SampleId

_KEY = ("dataset", "problem_id", "sample_index")
_UPSERT = (
    f"INSERT INTO samples (run_id, {', '.join(COLUMNS)}) VALUES "
    f"(?, {', '.join('?' for _ in COLUMNS)}) "
    f"ON CONFLICT (run_id, {', '.join(_KEY)}) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name not in _KEY)
)
_OF_SAMPLE = "run_id = ? AND dataset = ? AND problem_id = ? AND sample_index = ?"
_DELETED_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run as the index has it; ``position`` is the last entry of its stream that is in it."""

    id: int
    run: str
    incarnation: str
    position: str
    state: str | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries of a run's stream with the rows that their samples have now.

    A sample that has no verdict any more (it is to be judged again) has no row.
    """

    entries: Sequence[StreamEntry]
    rows: Mapping[SampleId, SampleRow]
    failures: Mapping[SampleId, Sequence[str]] = field(default_factory=dict)


class IndexWriter:
    """The one that writes. All of it may be done again."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def runs(self) -> dict[str, KnownRun]:
        with self._database.read() as connection:
            rows = connection.execute("SELECT id, run, incarnation, position, state FROM runs")
            return {row["run"]: KnownRun(*row) for row in rows}

    def add_run(self, look: RunProgress, planned: Mapping[str, tuple[int, int]]) -> None:
        """Enter a run of which nothing is indexed yet.

        Args:
            look: The run.
            planned: By data set how many problems and samples it owes.
        """
        with self._database.write() as connection:
            cursor = connection.execute(
                "INSERT INTO runs (run, incarnation) VALUES (?, ?)", (look.run, look.incarnation)
            )
            connection.executemany(
                "INSERT INTO planned VALUES (?, ?, ?, ?)",
                [(cursor.lastrowid, name, *counts) for name, counts in planned.items()],
            )

    def drop_run(self, run: KnownRun) -> None:
        """Forget a run; the counters keep what it added."""
        with self._database.write() as connection:
            # Renamed first: whoever asks meanwhile finds no run rather than half of one.
            connection.execute(
                "UPDATE runs SET run = ?, incarnation = '' WHERE id = ?", (f"\0{run.id}", run.id)
            )
        left = True
        while left:
            with self._database.write() as connection:
                left = bool(
                    connection.execute(
                        "DELETE FROM samples WHERE id IN "
                        "(SELECT id FROM samples WHERE run_id = ? LIMIT ?)",
                        (run.id, _DELETED_AT_ONCE),
                    ).rowcount
                )
        with self._database.write() as connection:
            for table in ("tallies", "moments", "planned"):
                connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run.id,))
            connection.execute("DELETE FROM runs WHERE id = ?", (run.id,))

    def set_facts(self, run: KnownRun, look: RunProgress, facts: Mapping[str, Any]) -> None:
        """``results``, which are large and only asked for run by run, have a place of their own."""
        results = json.dumps(facts.get("results") or {})
        others = json.dumps({name: value for name, value in facts.items() if name != "results"})
        with self._database.write() as connection:
            connection.execute(
                "UPDATE runs SET state = ?, completions = ?, facts = ?, results = ? WHERE id = ?",
                (look.state, look.completions, others, results, run.id),
            )

    def load(self, run: KnownRun, rows: Iterable[SampleRow]) -> None:
        """Write rows that come from no stream: nothing is counted, and the position stays."""
        with self._database.write() as connection:
            connection.executemany(_UPSERT, ((run.id, *row.columns()) for row in rows))

    def problem_facts(self, run: KnownRun, sample: SampleId) -> ProblemFacts | None:
        """What another sample of the same problem has brought in already."""
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT difficulty, tags, num_tests, prompt_length FROM samples "
                "WHERE run_id = ? AND dataset = ? AND problem_id = ? LIMIT 1",
                (run.id, sample.dataset, sample.problem_id),
            ).fetchone()
        if row is None or row["prompt_length"] is None:
            return None
        difficulty, tags, *numbers = row
        return ProblemFacts(difficulty, tuple(json.loads(tags)), *numbers)

    def apply(self, run: KnownRun, batch: Batch) -> None:
        """Write rows, counters and the position in one transaction.

        Entries up to the position that is there already are counted no second time.
        """
        with self._database.write() as connection:
            (position,) = connection.execute(
                "SELECT position FROM runs WHERE id = ?", (run.id,)
            ).fetchone()
            new = [e for e in batch.entries if entry_order(e.id) > entry_order(position)]
            if not new:
                return
            counting = Counting(connection)
            for entry in new:
                if entry.event is None:
                    counting.unreadable()
                else:
                    counting.event(entry.event.sample.dataset, entry.event.status)
            for sample in dict.fromkeys(e.event.sample for e in new if e.event):
                _write_sample(connection, run.id, sample, batch, counting)
            counting.store()
            connection.execute(
                "UPDATE runs SET position = ?, events = events + ? WHERE id = ?",
                (new[-1].id, len(new), run.id),
            )


def _write_sample(
    connection: sqlite3.Connection, run_id: int, sample: SampleId, batch: Batch, counting: Counting
) -> None:
    key = (run_id, sample.dataset, sample.problem_id, sample.sample_index)
    row = batch.rows.get(sample)
    if row is None:
        connection.execute(f"DELETE FROM samples WHERE {_OF_SAMPLE}", key)
        return
    found = connection.execute(
        f"SELECT {', '.join(COLUMNS)} FROM samples WHERE {_OF_SAMPLE}", key
    ).fetchone()
    before = None if found is None else SampleRow.model_validate(dict(found))
    counting.change(Change(row, before, batch.failures.get(sample, ())))
    connection.execute(_UPSERT, (run_id, *row.columns()))
