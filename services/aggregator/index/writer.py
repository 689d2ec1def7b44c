"""Index writer: every change is one transaction, idempotent by stream position (exactly once)."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from services.aggregator.index.database import Database
from services.aggregator.index.problems import write_problems
from services.aggregator.index.rows import COLUMNS, SampleRow
from services.aggregator.index.search import (
    SampleTexts,
    add_texts,
    put_prompt,
    put_texts,
    remove_prompts,
    remove_texts,
)
from shared.analysis.runs import ProblemNote
from shared.ledger import RunProgress, StreamEntry
from shared.ledger.streams import entry_order
from shared.redaction import redact_address
from shared.run_record import JsonObject, RunState
from shared.schemas import ProblemFacts, SampleId, without_surrogates
from shared.statuses import FinalStatus

_KEY = ("dataset", "problem_id", "sample_index")
_WRITTEN = (*COLUMNS, "kind", "prompt")
_KIND_AND_PROMPT = (
    "(SELECT id FROM kinds WHERE run_id = ? AND value = ?), "
    "(SELECT id FROM prompts WHERE run_id = ? AND dataset = ? AND problem_id = ?)"
)
_UPSERT = (
    f"INSERT INTO samples (run_id, {', '.join(_WRITTEN)}) VALUES "
    f"(?, {', '.join('?' for _ in COLUMNS)}, {_KIND_AND_PROMPT}) "
    f"ON CONFLICT (run_id, {', '.join(_KEY)}) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _WRITTEN if name not in _KEY)
    + " RETURNING id"
)
_PLACES = ("generation_at", "generation_bytes", "verdict_at", "verdict_bytes")
_PLACED = (
    f"INSERT INTO samples (run_id, {', '.join((*_WRITTEN, *_PLACES))}) VALUES "
    f"(?, {', '.join('?' for _ in COLUMNS)}, {_KIND_AND_PROMPT}, ?, ?, ?, ?) "
    "ON CONFLICT DO NOTHING"
)
_ADD_KIND = "INSERT INTO kinds (run_id, value) VALUES (?, ?) ON CONFLICT DO NOTHING"
_HIDDEN = "\0"
# What SQLite cannot store: a row of another type, a number above 64 bits, a lone surrogate.
_UNSTORABLE = (sqlite3.IntegrityError, sqlite3.DataError, OverflowError, UnicodeError)
_OF_SAMPLE = "run_id = ? AND dataset = ? AND problem_id = ? AND sample_index = ?"


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
    state: RunState | None
    folder: str | None = None

    @property
    def hidden(self) -> bool:
        """Whether the run is being deleted."""
        return self.run.startswith(_HIDDEN)


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A row that was read from a run's folder, with the places (offset, length) of its lines.

    ``texts`` is what is searched of it; without it, its texts are not found.
    """

    row: SampleRow
    verdict: tuple[int, int]
    generation: tuple[int, int] | None
    texts: SampleTexts | None = None

    def values(self, run_id: int) -> tuple[object, ...]:
        """The parameters of the statement that inserts it."""
        places = (*(self.generation or (None, None)), *self.verdict)
        return (*_values(run_id, self.row), *places)


class _RefusedError(Exception):
    """A row of a batch cannot be inserted."""


class DroppedRunError(Exception):
    """The run was deleted from the index while it was being read from its folder."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries of a run's stream, with the current rows of their samples.

    A sample whose verdict was withdrawn, because it will be judged again, has no row.
    ``infra_failures`` holds the kinds of each verdict's infrastructure failures, ``texts`` and
    ``prompts`` (by data set and problem) what is searched; a prompt is needed once. ``problems`` is
    what is known of the samples' problems.
    """

    entries: Sequence[StreamEntry]
    rows: Mapping[SampleId, SampleRow]
    infra_failures: Mapping[SampleId, Sequence[str]] = field(default_factory=dict)
    texts: Mapping[SampleId, SampleTexts] = field(default_factory=dict)
    prompts: Mapping[tuple[str, str], str] = field(default_factory=dict)
    problems: Mapping[tuple[str, str], ProblemNote] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SampleChange:
    """A sample's new row, the row it replaces, and the kinds of the verdict's failures."""

    row: SampleRow
    before: SampleRow | None
    infra_failures: Sequence[str] = ()

    @property
    def new_generation(self) -> bool:
        return self.before is None or _generation(self.before) != _generation(self.row)

    @property
    def new_verdict(self) -> bool:
        return self.before is None or _verdict(self.before) != _verdict(self.row)


@dataclass(frozen=True, slots=True)
class AppliedBatch:
    """Entries and changes of a batch that were new to the index."""

    entries: Sequence[StreamEntry] = ()
    changes: Sequence[SampleChange] = ()


class IndexWriter:
    """The single writer of a database. Every method is safe to repeat."""

    def __init__(self, database: Database, delete_size: int = 2000) -> None:
        """``delete_size``: rows deleted per transaction when a run is dropped."""
        self._database = database
        self._delete_size = delete_size

    def runs(self) -> dict[str, KnownRun]:
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT id, run, incarnation, position, state, folder FROM runs"
            )
            return {
                row["run"]: KnownRun(**{**row, "state": row["state"] and RunState(row["state"])})
                for row in rows
            }

    def add_run(
        self,
        progress: RunProgress,
        planned: Mapping[str, tuple[int, int]],
        sha256: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> int:
        """Add a run to the index; return its id there.

        A run of the ledger takes the place of one of the same name that was read from a folder.

        Args:
            progress: The run.
            planned: Number of problems and samples of each data set.
            sha256: The hash of each data set, as far as they are known.
            folder: URL of the folder that it is going to be read from, if it is not the ledger's.

        Raises:
            sqlite3.IntegrityError: There is another run of this name.
        """
        hashes = sha256 or {}
        with self._database.write() as connection:
            if folder is None:
                for (other,) in connection.execute(
                    "SELECT id FROM runs WHERE run = ? AND folder IS NOT NULL", (progress.run,)
                ).fetchall():
                    _hide(connection, other)
            added = connection.execute(
                "INSERT INTO runs (run, incarnation, folder, reading) VALUES (?, ?, ?, ?)",
                (progress.run, progress.incarnation, folder, folder is not None),
            ).lastrowid
            assert added is not None
            connection.executemany(
                "INSERT INTO planned (run_id, dataset, problems, samples, sha256) "
                "VALUES (?, ?, ?, ?, ?)",
                [(added, name, *counts, hashes.get(name, "")) for name, counts in planned.items()],
            )
            return added

    def hide_run(self, run: KnownRun) -> None:
        """Hide a run that is going to be dropped, so that another one can have its name."""
        with self._database.write() as connection:
            _hide(connection, run.id)

    def drop_run(self, run: KnownRun) -> None:
        """Delete a run and its samples."""
        self.hide_run(run)  # so that queries never see half of it
        left = True
        while left:
            with self._database.write() as connection:
                removed = connection.execute(
                    "DELETE FROM samples WHERE id IN "
                    "(SELECT id FROM samples WHERE run_id = ? LIMIT ?) RETURNING id",
                    (run.id, self._delete_size),
                ).fetchall()
                remove_texts(connection, (number for (number,) in removed))
                left = remove_prompts(connection, run.id, self._delete_size) or bool(removed)
        with self._database.write() as connection:
            for table in ("kinds", "tallies", "planned", "outlines", "problems"):
                connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run.id,))
            connection.execute("DELETE FROM runs WHERE id = ?", (run.id,))

    def set_facts(self, run: KnownRun, progress: RunProgress, facts: JsonObject) -> None:
        """Store a run's metadata without secrets.

        ``results`` has a separate column, because it is large and only read for single runs.
        """
        shown = {name: _public(value) for name, value in facts.items()}
        results = json.dumps(shown.pop("results", None) or {})
        with self._database.write() as connection:
            connection.execute(
                "UPDATE runs SET state = ?, completions = ?, facts = ?, results = ? WHERE id = ?",
                (progress.state, progress.completions, json.dumps(shown), results, run.id),
            )

    def load(self, run: KnownRun, samples: Sequence[PlacedRow]) -> list[SampleRow]:
        """Write rows that were read from a folder, and count them.

        Returns:
            The rows that were left out: second ones of a sample, and those with values that SQLite
            cannot store.

        Raises:
            DroppedRunError: The run was deleted.
        """
        try:
            self._load(run, samples, _insert)
        except _RefusedError:
            return [one.row for one in self._load(run, samples, _insert_one_by_one)]
        return []

    def _load(
        self,
        run: KnownRun,
        samples: Sequence[PlacedRow],
        insert: Callable[[sqlite3.Connection, int, Sequence[PlacedRow]], Sequence[PlacedRow]],
    ) -> list[PlacedRow]:
        """Write and count rows in one transaction; returns those that were left out."""
        with self._database.write() as connection:
            _check_there(connection, run)
            added = insert(connection, run.id, samples)
            _count(connection, run.id, [one.row for one in added])
            completions = sum(one.generation is not None for one in added)
            connection.execute(
                "UPDATE runs SET events = events + ?, completions = completions + ? WHERE id = ?",
                (len(added), completions, run.id),
            )
        there = set(map(id, added))
        return [one for one in samples if id(one) not in there]

    def load_outlines(
        self,
        run: KnownRun,
        outlines: Iterable[tuple[tuple[str, str], tuple[int, int]]],
        prompts: Mapping[tuple[str, str], str],
    ) -> None:
        """Write the places (offset, length) of problems in ``problems.jsonl``, and their prompts.

        Raises:
            DroppedRunError: The run was deleted.
        """
        with self._database.write() as connection:
            _check_there(connection, run)
            connection.executemany(
                "INSERT INTO outlines VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                ((run.id, *problem, *place) for problem, place in outlines),
            )
            for problem, prompt in prompts.items():
                put_prompt(connection, run.id, problem, prompt)

    def finish_reading(self, run: KnownRun, incarnation: str, notes: Sequence[str]) -> None:
        """Record that all of a run's folder was read, and what of it could not be.

        Raises:
            DroppedRunError: The run was deleted.
        """
        with self._database.write() as connection:
            _check_there(connection, run)
            connection.execute(
                "UPDATE runs SET incarnation = ?, reading = 0, notes = ? WHERE id = ?",
                (incarnation, json.dumps(notes), run.id),
            )

    def notes(self) -> dict[str, list[str]]:
        """What cannot be read of runs' folders, by folder."""
        with self._database.read() as connection:
            found = connection.execute(
                "SELECT folder, notes FROM runs WHERE folder IS NOT NULL AND notes <> '[]'"
            )
            return {folder: json.loads(notes) for folder, notes in found}

    def note_problems(self, run: KnownRun, notes: Mapping[tuple[str, str], ProblemNote]) -> None:
        """Add what is known of problems, by data set and id."""
        with self._database.write() as connection:
            write_problems(connection, run.id, notes)

    def problem_facts(
        self, run: KnownRun, problems: Iterable[tuple[str, str]]
    ) -> dict[tuple[str, str], ProblemFacts]:
        """Facts already stored with another sample of the same problem.

        Args:
            run: The run.
            problems: Data set and id of each problem; those without stored facts are left out.
        """
        found = {}
        with self._database.read() as connection:
            for problem in problems:
                row = connection.execute(
                    "SELECT difficulty, tags, num_tests, prompt_length FROM samples "
                    "WHERE run_id = ? AND dataset = ? AND problem_id = ? LIMIT 1",
                    (run.id, *problem),
                ).fetchone()
                if row is not None and row["prompt_length"] is not None:
                    difficulty, tags, *numbers = row
                    found[problem] = ProblemFacts(difficulty, tuple(json.loads(tags)), *numbers)
        return found

    def rewind(self, run: KnownRun) -> None:
        """Begin again at the first entry of a stream that has lost its last ones; rows stay."""
        with self._database.write() as connection:
            connection.execute("UPDATE runs SET position = '0', events = 0 WHERE id = ?", (run.id,))

    def apply(self, run: KnownRun, batch: Batch) -> AppliedBatch:
        """Write rows and stream position in one transaction; skip entries up to the position.

        Returns:
            The part of the batch that was new and is now committed.
        """
        with self._database.write() as connection:
            (position,) = connection.execute(
                "SELECT position FROM runs WHERE id = ?", (run.id,)
            ).fetchone()
            new = [e for e in batch.entries if entry_order(e.id) > entry_order(position)]
            if not new:
                return AppliedBatch()
            samples = dict.fromkeys(e.event.sample for e in new if e.event)
            for problem, prompt in batch.prompts.items():
                put_prompt(connection, run.id, problem, prompt)
            write_problems(connection, run.id, batch.problems)
            written = [_write_sample(connection, run.id, sample, batch) for sample in samples]
            connection.execute(
                "UPDATE runs SET position = ?, events = events + ? WHERE id = ?",
                (new[-1].id, len(new), run.id),
            )
        return AppliedBatch(new, [change for change in written if change])


def _hide(connection: sqlite3.Connection, run_id: int) -> None:
    connection.execute(
        "UPDATE runs SET run = ?, incarnation = '' WHERE id = ?", (f"{_HIDDEN}{run_id}", run_id)
    )


def _check_there(connection: sqlite3.Connection, run: KnownRun) -> None:
    found = connection.execute("SELECT run FROM runs WHERE id = ?", (run.id,)).fetchone()
    if found is None or found[0].startswith(_HIDDEN):
        raise DroppedRunError(run.run)


def _insert(
    connection: sqlite3.Connection, run_id: int, samples: Sequence[PlacedRow]
) -> Sequence[PlacedRow]:
    """Insert all rows, or raise :class:`_RefusedError`.

    Rolling back the transaction and trying again costs more than a savepoint only where a row is
    refused; a savepoint copies most pages of all indexes with every batch.
    """
    try:
        connection.executemany(_ADD_KIND, {(run_id, one.row.kind()) for one in samples})
        values = (one.values(run_id) for one in samples)
        inserted = connection.executemany(_PLACED, values).rowcount
    except _UNSTORABLE:
        raise _RefusedError from None
    if inserted < len(samples):
        raise _RefusedError
    (last,) = connection.execute("SELECT last_insert_rowid()").fetchone()
    # The only writer gives consecutive ids.
    numbered = enumerate(samples, last - len(samples) + 1)
    add_texts(connection, ((number, one.texts) for number, one in numbered if one.texts))
    return samples


def _insert_one_by_one(
    connection: sqlite3.Connection, run_id: int, samples: Sequence[PlacedRow]
) -> Sequence[PlacedRow]:
    """Insert the rows that can be; returns them."""
    return [one for one in samples if _insert_one(connection, run_id, one)]


def _insert_one(connection: sqlite3.Connection, run_id: int, sample: PlacedRow) -> bool:
    connection.execute("SAVEPOINT one")
    try:
        connection.execute(_ADD_KIND, (run_id, sample.row.kind()))
        found = connection.execute(f"{_PLACED} RETURNING id", sample.values(run_id)).fetchone()
        if found is not None:
            _put_texts(connection, found["id"], sample.texts)
        connection.execute("RELEASE one")
    except _UNSTORABLE:
        connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")
        return False
    return found is not None


def _count(connection: sqlite3.Connection, run_id: int, rows: Sequence[SampleRow]) -> None:
    """Add to the tallies, which triggers do for the rows of other runs."""
    samples, accepted = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in rows:
        key = row.dataset, str(row.final_status)
        samples[key] += 1
        accepted[key] += row.accepted
    connection.executemany(
        "INSERT INTO tallies VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "samples = samples + excluded.samples, accepted = accepted + excluded.accepted",
        [(run_id, *key, count, accepted[key]) for key, count in samples.items()],
    )


def _write_sample(
    connection: sqlite3.Connection, run_id: int, sample: SampleId, batch: Batch
) -> SampleChange | None:
    key = (run_id, sample.dataset, sample.problem_id, sample.sample_index)
    row = batch.rows.get(sample)
    if row is None:
        removed = connection.execute(f"DELETE FROM samples WHERE {_OF_SAMPLE} RETURNING id", key)
        remove_texts(connection, [number for (number,) in removed.fetchall()])
        return None
    found = connection.execute(
        f"SELECT {', '.join(COLUMNS)} FROM samples WHERE {_OF_SAMPLE}", key
    ).fetchone()
    _put(connection, run_id, row, batch.texts.get(sample))
    before = None if found is None else SampleRow.model_validate(dict(found))
    return SampleChange(row, before, batch.infra_failures.get(sample, ()))


def _put(
    connection: sqlite3.Connection, run_id: int, row: SampleRow, texts: SampleTexts | None
) -> None:
    connection.execute(_ADD_KIND, (run_id, row.kind()))
    (number,) = connection.execute(_UPSERT, _values(run_id, row)).fetchone()
    _put_texts(connection, number, texts)


def _values(run_id: int, row: SampleRow) -> tuple[object, ...]:
    """The run, the row's columns, and what its kind and prompt are found by."""
    problem = (run_id, row.dataset, row.problem_id)
    return (run_id, *row.columns(), run_id, row.kind(), *problem)


def _put_texts(connection: sqlite3.Connection, number: int, texts: SampleTexts | None) -> None:
    if texts is not None:
        put_texts(connection, number, texts)


def _generation(row: SampleRow) -> tuple[str, float | None]:
    return row.completion_sha256, row.finished_at


def _verdict(row: SampleRow) -> tuple[str, float | None, FinalStatus]:
    return row.completion_sha256, row.judged_at, row.final_status


def _public(value: JsonValue) -> JsonValue:
    """Remove secrets of addresses, and surrogates, which UTF-8 cannot encode."""
    if isinstance(value, dict):
        return {name: _public(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_public(part) for part in value]
    return redact_address(without_surrogates(value)) if isinstance(value, str) else value
