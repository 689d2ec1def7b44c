"""Index writer: every change is one transaction, idempotent by stream position (exactly once).

The stream of a run of the ledger (:meth:`IndexWriter.apply`) and the folder of a finished one
(:meth:`IndexWriter.load`) feed the same rows.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pydantic import JsonValue

from services.aggregator.index.database import Database
from services.aggregator.index.rows import (
    COLUMNS,
    ProblemKey,
    Record,
    SampleRow,
    put_outlines,
    read_facts,
)
from services.aggregator.index.search import put_texts, sample_texts
from shared.ledger import RunProgress, VerdictEvent
from shared.ledger.runs import entry_order
from shared.outlines import ProblemOutline
from shared.redaction import redact_values
from shared.run_record import DatasetRecord, JsonObject
from shared.schemas import (
    Generation,
    ProblemFacts,
    SampleId,
    Verdict,
    is_encodable,
    without_surrogates,
)

_KEY = ("dataset", "problem_id", "sample_index")
_OF_SAMPLE = "run_id = ? AND dataset = ? AND problem_id = ? AND sample_index = ?"
_FIND = (
    "SELECT completion_sha256, finished_at, judged_at, final_status FROM samples "
    f"WHERE {_OF_SAMPLE}"
)
_PUT = (
    f"INSERT INTO samples (run_id, {', '.join(COLUMNS)}) "
    f"VALUES (?, {', '.join('?' for _ in COLUMNS)}) ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name not in _KEY)
    + " RETURNING id"
)
_MOST = 2**63  # integers of SQLite are less
DELETED_AT_ONCE = 2000  # rows per transaction

JudgedSample = tuple[Verdict, Generation | None]


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run in the index.

    ``position`` is the id of its last indexed stream entry, ``folder`` the URL that it was read
    from if it is not the ledger's. A run of a folder has its incarnation when all of it was read.
    """

    id: int
    run: str
    incarnation: str
    position: str
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class SampleChange:
    """A sample's new row and verdict, and what of it is new."""

    row: SampleRow
    verdict: Verdict
    new_generation: bool
    new_verdict: bool


class IndexWriter:
    """The single writer of a database. Every method is safe to repeat."""

    def __init__(self, database: Database, *, searched: bool = True) -> None:
        """Write to a database; ``searched`` is whether texts are going to be searched."""
        self._database = database
        self._searched = searched
        self._swept = False

    def runs(self) -> dict[str, KnownRun]:
        with self._database.read() as connection:
            rows = connection.execute("SELECT id, run, incarnation, position, folder FROM runs")
            return {row["run"]: KnownRun(**row) for row in rows}

    def add_run(
        self, progress: RunProgress, datasets: Sequence[DatasetRecord], folder: str | None = None
    ) -> KnownRun:
        """Add a run to the index.

        A run of the ledger takes the place of one of the same name that was read from a folder.

        Raises:
            sqlite3.IntegrityError: There is another run of this name.
        """
        if folder is None:
            self._drop("run = ? AND folder IS NOT NULL", progress.run)
        documents = json.dumps([dataset.model_dump(mode="json") for dataset in datasets])
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO runs (run, incarnation, folder, reading, datasets) "
                "VALUES (?, ?, ?, ?, ?)",
                (progress.run, progress.incarnation, folder, folder is not None, documents),
            )
        return self.runs()[progress.run]

    def drop_run(self, run: KnownRun) -> None:
        """Delete a run and its samples."""
        self._drop("id = ?", run.id)

    def _drop(self, where: str, value: str | int) -> None:
        """Delete runs at once, and what is left of them in short transactions."""
        with self._database.write() as connection:
            if connection.execute(f"DELETE FROM runs WHERE {where}", (value,)).rowcount:
                self._swept = False
        self.sweep()

    def sweep(self) -> None:
        """Delete what is left of dropped runs, also by a process that was killed meanwhile."""
        orphans = f"run_id NOT IN (SELECT id FROM runs) LIMIT {DELETED_AT_ONCE}"
        for table in () if self._swept else ("samples", "problems", "tallies"):
            some = f"SELECT rowid FROM {table} WHERE {orphans}"
            removed = 1
            while removed:
                with self._database.write() as connection:
                    removed = connection.execute(
                        f"DELETE FROM {table} WHERE rowid IN ({some})"
                    ).rowcount
        self._swept = True

    def set_facts(self, run: KnownRun, progress: RunProgress, facts: JsonObject) -> None:
        """Store a run's metadata without secrets.

        ``results`` has a separate column, because it is large and only read for single runs.
        """
        shown = {name: value for name, value in facts.items() if name != "results"}
        results = public_json(facts.get("results") or {})
        values = (progress.state, progress.completions, public_json(shown), results)
        with self._database.write() as connection:
            connection.execute(
                "UPDATE runs SET state = ?, completions = ?, facts = ?, results = ?, "
                "version = version + 1 WHERE id = ? "
                "AND (state IS NOT ? OR completions <> ? OR facts <> ? OR results <> ?)",
                (*values, run.id, *values),
            )

    def load(self, run: KnownRun, samples: Sequence[JudgedSample]) -> list[SampleId]:
        """Write samples that were read from a folder.

        Returns:
            The samples that were left out: second ones, and those with numbers that SQLite cannot
            store.
        """
        left_out: list[SampleId] = []
        written: list[tuple[int, JudgedSample]] = []
        with self._database.write() as connection:
            for row, sample in _rows(connection, run.id, samples):
                if not _storable(row) or _before(connection, run.id, row):
                    left_out.append(sample[0].sample)
                else:
                    written.append((_put(connection, run.id, row, *sample), sample))
            self._put_texts(connection, written)
            completions = sum(generation is not None for _, (_, generation) in written)
            connection.execute(
                "UPDATE runs SET events = events + ?, completions = completions + ?, "
                "version = version + 1 WHERE id = ?",
                (len(samples) - len(left_out), completions, run.id),
            )
        return left_out

    def load_outlines(self, run: KnownRun, outlines: Iterable[ProblemOutline]) -> None:
        """Write outlines of problems that were read from a folder."""
        with self._database.write() as connection:
            put_outlines(connection, run.id, outlines, searched=self._searched)

    def finish_reading(self, run: KnownRun, incarnation: str, notes: Sequence[str]) -> None:
        """Record that all of a run's folder was read, and what of it could not be.

        The ledger's run of this name may have taken its place: then the next sweep deletes the rows
        that were written since.
        """
        with self._database.write() as connection:
            finished = connection.execute(
                "UPDATE runs SET incarnation = ?, reading = 0, notes = ?, version = version + 1 "
                "WHERE id = ?",
                (incarnation, json.dumps(notes), run.id),
            )
            self._swept &= bool(finished.rowcount)

    def notes(self) -> list[tuple[str, str]]:
        """Folders of runs, each with a line about what cannot be read of it."""
        select = "SELECT folder, value FROM runs, json_each(notes) WHERE folder IS NOT NULL"
        with self._database.read() as connection:
            return [(folder, line) for folder, line in connection.execute(select)]

    def known_problems(self, run: KnownRun, problems: Iterable[ProblemKey]) -> set[ProblemKey]:
        """Those of the problems whose outline is in the index."""
        with self._database.read() as connection:
            return set(read_facts(connection, run.id, problems))

    def apply(
        self,
        run: KnownRun,
        events: Sequence[VerdictEvent],
        judged: Mapping[SampleId, JudgedSample],
        outlines: Iterable[ProblemOutline] = (),
    ) -> tuple[Sequence[VerdictEvent], Sequence[SampleChange]]:
        """Write rows and stream position in one transaction; skip entries up to the position.

        Args:
            run: The run.
            events: Entries of its stream.
            judged: The current verdicts and completions of their samples. A sample whose verdict
                was withdrawn, because it will be judged again, is missing.
            outlines: Those of problems that are not in the index yet.

        Returns:
            The entries and changes that were new and are now committed.
        """
        with self._database.write() as connection:
            (position,) = connection.execute(
                "SELECT position FROM runs WHERE id = ?", (run.id,)
            ).fetchone()
            new = [e for e in events if entry_order(e.entry) > entry_order(position)]
            if not new:
                return [], []
            put_outlines(connection, run.id, outlines, searched=self._searched)
            samples = list(dict.fromkeys(event.sample for event in new))
            for sample in samples:
                if sample not in judged:
                    key = (run.id, sample.dataset, sample.problem_id, sample.sample_index)
                    connection.execute(f"DELETE FROM samples WHERE {_OF_SAMPLE}", key)
            changes, written = [], []
            present = [judged[sample] for sample in samples if sample in judged]
            for row, (verdict, generation) in _rows(connection, run.id, present):
                before = _before(connection, run.id, row)
                number = _put(connection, run.id, row, verdict, generation)
                written.append((number, (verdict, generation)))
                made = (row.completion_sha256, row.finished_at)
                decided = (row.completion_sha256, row.judged_at, row.final_status)
                changes.append(
                    SampleChange(
                        row,
                        verdict,
                        new_generation=before is None or before[:2] != made,
                        new_verdict=before is None or (before[0], *before[2:]) != decided,
                    )
                )
            self._put_texts(connection, written)
            connection.execute(
                "UPDATE runs SET position = ?, events = events + ?, version = version + 1 "
                "WHERE id = ?",
                (new[-1].entry, len(new), run.id),
            )
        return new, changes

    def _put_texts(
        self, connection: sqlite3.Connection, written: Iterable[tuple[int, JudgedSample]]
    ) -> None:
        """Index the texts of written samples, after all of their rows.

        FTS5 writes what it has collected with each statement that may be undone by itself, as that
        of a row: in turns they take ten times the time.
        """
        if self._searched:
            for number, sample in written:
                put_texts(connection, number, sample_texts(*sample))


def _put(
    connection: sqlite3.Connection,
    run_id: int,
    row: SampleRow,
    verdict: Verdict,
    generation: Generation | None,
) -> int:
    """Write a sample's row and record; return the id of both."""
    number = put_row(connection, run_id, row)
    record = Record(verdict=verdict, generation=generation).packed()
    connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?)", (number, record))
    return number


def put_row(connection: sqlite3.Connection, run_id: int, row: SampleRow) -> int:
    """Write the row of a sample, in place of an earlier one; return its id."""
    (number,) = connection.execute(_PUT, (run_id, *row.columns())).fetchone()
    return int(number)


def _rows(
    connection: sqlite3.Connection, run_id: int, samples: Sequence[JudgedSample]
) -> Iterator[tuple[SampleRow, JudgedSample]]:
    """Yield the row of each sample, with the facts that are known of its problem."""
    problems = {(verdict.dataset, verdict.problem_id) for verdict, _ in samples}
    facts = read_facts(connection, run_id, problems)
    for verdict, generation in samples:
        own = facts.get((verdict.dataset, verdict.problem_id), ProblemFacts())
        yield SampleRow.of(verdict, generation, own), (verdict, generation)


def _before(
    connection: sqlite3.Connection, run_id: int, row: SampleRow
) -> tuple[object, ...] | None:
    """Completion, its time, time of the verdict and status of a sample's present row."""
    key = (run_id, row.dataset, row.problem_id, row.sample_index)
    present = connection.execute(_FIND, key).fetchone()
    return None if present is None else tuple(present)


def _storable(row: SampleRow) -> bool:
    """Whether SQLite can store a row: no number above 64 bits, no lone surrogate."""
    return all(
        is_encodable(value) if isinstance(value, str) else abs(value) < _MOST
        for value in row.columns()
        if isinstance(value, str | int)
    )


def public_json(document: JsonValue) -> str:
    """JSON without secrets of addresses, and without surrogates, which UTF-8 cannot encode."""
    return _public(json.dumps(document))


@lru_cache(maxsize=100)  # the facts of a running run are stored often, and seldom change
def _public(text: str) -> str:
    return without_surrogates(json.dumps(redact_values(json.loads(text)), ensure_ascii=False))
