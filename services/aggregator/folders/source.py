"""Samples of a finished run, read from its folder at the places that the index has."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from services.aggregator.folders.files import Place, RunFiles
from services.aggregator.index.database import Database
from services.aggregator.index.overview import IndexedRun
from services.aggregator.sources import CaseWindow, GoneError, ProblemKey
from shared import artifacts
from shared.case_records import failing_first
from shared.errors import DataError
from shared.json_lines import parse_record
from shared.outlines import ProblemOutline
from shared.run_record import CasesRecord
from shared.schemas import CaseRecord, Generation, RecordedCases, SampleId, Verdict, describe
from shared.statuses import FinalStatus

RecordT = TypeVar("RecordT", bound=BaseModel)
ValueT = TypeVar("ValueT")
_CHUNK = 200
# Lines of cases that begin otherwise have to be parsed to know their sample.
_BEGIN = b'{"dataset":"'
_PLACES = (
    "SELECT {name}_at, {name}_bytes FROM samples WHERE run_id = ? AND dataset = ? "
    "AND problem_id = ? AND sample_index = ?"
)


class FolderSource:
    """Samples of a run that was loaded from its folder."""

    def __init__(self, database: Database, run: IndexedRun) -> None:
        if run.folder is None:
            raise ValueError(f"run {run.run} was not loaded from a folder")
        self._database = database
        self._run = run
        self._files = RunFiles(run.folder)

    def outline(self, problem: ProblemKey) -> ProblemOutline | None:
        return next(self.outlines([problem]), None)

    def generation(self, sample: SampleId) -> Generation | None:
        return next(self.generations([sample]), None)

    def verdict(self, sample: SampleId) -> Verdict | None:
        return next(self.verdicts([sample]), None)

    def outlines(self, problems: Sequence[ProblemKey]) -> Iterator[ProblemOutline]:
        for chunk in _chunks(problems):
            with self._database.read() as connection:
                found = {one: self._outline_place(connection, one) for one in chunk}
            known = {one: place for one, place in found.items() if place}
            read = self._read(artifacts.PROBLEMS, ProblemOutline, list(known.values()))
            for wanted, outline in zip(known, read, strict=True):
                if (outline.dataset, outline.problem_id) != wanted:
                    raise self._changed()
                yield outline

    def generations(self, samples: Sequence[SampleId]) -> Iterator[Generation]:
        return self._records(artifacts.GENERATIONS, "generation", Generation, samples)

    def verdicts(self, samples: Sequence[SampleId]) -> Iterator[Verdict]:
        return self._records(artifacts.VERDICTS, "verdict", Verdict, samples)

    def all_generations(self) -> Iterator[Generation]:
        with self._database.read() as connection:
            found = connection.execute(
                "SELECT generation_at, generation_bytes FROM samples "
                "WHERE run_id = ? AND generation_at IS NOT NULL ORDER BY generation_at",
                (self._run.id,),
            )
            while chunk := found.fetchmany(_CHUNK):
                yield from self._read(
                    artifacts.GENERATIONS, Generation, [Place(*row) for row in chunk]
                )

    def cases(self, sample: SampleId, offset: int, limit: int) -> CaseWindow | None:
        with self._database.read() as connection:
            if self._sample_place(connection, "verdict", sample) is None:
                return None
        facts = self._run.facts.get("cases")
        if not isinstance(facts, dict):
            return CaseWindow(None, 0, ())
        cases = self._all_cases(sample)
        recorded = _recorded(CasesRecord.model_validate(facts))
        return CaseWindow(recorded, len(cases), failing_first(cases)[offset : offset + limit])

    def _all_cases(self, sample: SampleId) -> list[CaseRecord]:
        """Read the file up to the sample's cases, which follow each other."""
        begin = _begin_of(sample)
        found: list[CaseRecord] = []
        try:
            for line in self._files.unpacked_lines(artifacts.CASES):
                ours = line.startswith(_BEGIN)
                if line.startswith(begin) if ours else self._sample_of(line) == sample:
                    found.append(self._parsed(artifacts.CASES, CaseRecord, line))
                elif found:
                    break
        except DataError as error:
            raise GoneError(f"run {self._run.run}: {error}") from None
        return found

    def _sample_of(self, line: bytes) -> SampleId | None:
        """The sample of a line that another program has written again."""
        return self._parsed(artifacts.CASES, CaseRecord, line).sample if line.strip() else None

    def _records(
        self, file: str, name: str, kind: type[RecordT], samples: Sequence[SampleId]
    ) -> Iterator[RecordT]:
        for chunk in _chunks(samples):
            with self._database.read() as connection:
                found = {one: self._sample_place(connection, name, one) for one in chunk}
            known = {one: place for one, place in found.items() if place}
            read = self._read(file, kind, list(known.values()))
            for wanted, record in zip(known, read, strict=True):
                if getattr(record, "sample", None) != wanted:
                    raise self._changed()
                yield record

    def _read(self, file: str, kind: type[RecordT], places: Sequence[Place]) -> Iterator[RecordT]:
        if not places:
            return
        try:
            for place, line in zip(places, self._files.read(file, places), strict=True):
                if len(line) < place.size:
                    raise self._changed()
                yield self._parsed(file, kind, line)
        except FileNotFoundError:
            raise GoneError(
                f"run {self._run.run} is no longer in {self._run.folder}: {file} was removed while "
                "it was looked at"
            ) from None
        except DataError:
            # The lines could be read when their places were noted.
            raise self._changed() from None

    def _parsed(self, file: str, kind: type[RecordT], line: bytes) -> RecordT:
        path = self._files.path(file)
        try:
            return parse_record(kind, path, line)
        except ValidationError as error:
            raise DataError(f"{path}: not a {kind.__name__.lower()} ({describe(error)})") from None

    def _changed(self) -> GoneError:
        return GoneError(
            f"the files of run {self._run.run} were replaced, or cannot be read any more; they are "
            "read again as soon as they can be, so reload in a few seconds"
        )

    def _sample_place(
        self, connection: sqlite3.Connection, name: str, sample: SampleId
    ) -> Place | None:
        key = (self._run.id, sample.dataset, sample.problem_id, sample.sample_index)
        return _place(connection.execute(_PLACES.format(name=name), key).fetchone())

    def _outline_place(self, connection: sqlite3.Connection, problem: ProblemKey) -> Place | None:
        return _place(
            connection.execute(
                "SELECT start, bytes FROM outlines "
                "WHERE run_id = ? AND dataset = ? AND problem_id = ?",
                (self._run.id, *problem),
            ).fetchone()
        )


def _place(row: sqlite3.Row | None) -> Place | None:
    return None if row is None or row[0] is None else Place(row[0], row[1])


def _chunks(values: Sequence[ValueT]) -> Iterator[Sequence[ValueT]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]


def _begin_of(sample: SampleId) -> bytes:
    """Return how the lines of a sample's cases begin, as :class:`CaseRecord` writes them."""
    case = CaseRecord(
        dataset=sample.dataset,
        problem_id=sample.problem_id,
        sample_index=sample.sample_index,
        case_index=0,
        status=FinalStatus.SUCCESS,
    )
    names = case.model_dump_json(include={"dataset", "problem_id", "sample_index"})
    return names.removesuffix("}").encode() + b","


def _recorded(record: CasesRecord) -> RecordedCases | None:
    """Which cases of a sample were recorded; a run resumed with another setting has several."""
    if len(record.samples) == 1:
        return next(iter(record.samples))
    return "failed" if record.samples else None
