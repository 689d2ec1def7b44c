"""Prepared data sets: parquet files of problems with reference solutions, manifests, lists, lock.

All are written atomically.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from services.data.layouts.base import Record, Solution
from shared.datasets import (
    CANONICAL_VERSION,
    SCHEMA,
    SOLUTIONS,
    WRONG,
    problem_fields,
    problem_rows,
)
from shared.errors import data_error
from shared.files import atomic_write
from shared.manifests import LOCK_NAME, DataLock, DataRole, hash_file
from shared.schemas import MbppTests, Problem, QualityFinding, Verdict

NO_PROBLEM = "the data set has no problem; prepare or import it again"
_STATEMENT = "statement"
# No run reads the further columns.
_FURTHER = (SOLUTIONS, WRONG, _STATEMENT)
_SCHEMA = pa.schema([*SCHEMA, *(pa.field(name, pa.string()) for name in _FURTHER)])
_FRAME = "The code has to pass these assertions:"
# Limits of a row group. One ground truth may have 20 MB.
_ROWS = 64
_CHARACTERS = 16 << 20


# Reading


def read_records(path: str) -> Iterator[Record]:
    """Read a prepared file row by row; duplicate ids are not checked.

    Raises:
        DataError: While iterating: the file cannot be read or is not a prepared file.
    """
    for row, values in problem_rows(path, further=_FURTHER):
        solutions, wrong, statement = (values.get(name) for name in _FURTHER)
        try:
            problem = Problem.model_validate(problem_fields(path, row, values))
            yield Record(
                problem, _parse_solutions(solutions), statement or "", _parse_solutions(wrong)
            )
        except (ValueError, TypeError) as error:
            cause = " ".join(str(error).split())[:200]
            raise data_error(f"{path}: row {row}", f"not a prepared problem: {cause}") from None


def _parse_solutions(text: str | None) -> tuple[Solution, ...]:
    return tuple(Solution(**entry) for entry in json.loads(text or "[]"))


@dataclass(frozen=True, slots=True)
class ProblemText:
    """The texts of a problem that are compared: its statement and its reference solutions.

    ``statement`` has neither a frame nor the tests that a prompt quotes; ``prompt_sha256`` is of
    the canonical prompt.
    """

    dataset: str
    problem_id: str
    statement: str
    solutions: tuple[str, ...] = ()
    split: str = ""
    prompt_sha256: str = ""

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.problem_id}"


def text_of(record: Record) -> ProblemText:
    """Extract the texts to compare; the statement is the prompt, less the tests that it quotes."""
    problem, statement = record.problem, record.statement
    if not statement and isinstance(tests := problem.tests, MbppTests):
        frame = {line.strip() for test in tests.test_list for line in test.splitlines()} | {_FRAME}
        lines = [line for line in problem.prompt.splitlines() if line.strip() not in frame]
        statement = "\n".join(lines).strip()
    return ProblemText(
        dataset=problem.dataset,
        problem_id=problem.problem_id,
        statement=statement or problem.prompt,
        solutions=tuple(solution.code for solution in record.solutions),
        split=problem.split,
        prompt_sha256=problem.prompt_sha256,
    )


# Writing


def write_records(path: str, records: Iterable[Record]) -> None:
    """Write problems, which are not validated again, and their solutions; few are in memory.

    The file is replaced atomically when all records were read.

    Args:
        path: A local path or any fsspec URL; missing folders are created.
        records: The problems; an error that they raise leaves an earlier file untouched.

    Raises:
        DataError: The file cannot be written, or there is no problem.
    """
    try:
        fs, target = fsspec.core.url_to_fs(path)
        if fs.isdir(target):
            raise IsADirectoryError("a folder has that name")
        with atomic_write(fs, target, "wb") as file:
            with pq.ParquetWriter(file, _SCHEMA, compression="zstd") as parquet:
                empty = True
                for rows in _row_groups(records):
                    parquet.write_batch(pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))
                    empty = False
            if empty:
                raise data_error(path, "no problem to write; an empty data set is not readable")
    except UnicodeEncodeError as error:
        cause = f"a text has a character that UTF-8 cannot encode ({error.reason}); remove it"
        raise data_error(path, cause) from None
    except (OSError, ValueError, ImportError) as error:
        raise data_error(path, f"cannot be written ({error}); check the folder") from None


def _row_groups(records: Iterable[Record]) -> Iterator[list[dict[str, str]]]:
    rows: list[dict[str, str]] = []
    characters = 0
    for record in records:
        row = {name: getattr(record.problem, name) for name in SCHEMA.names}
        for column, programs in ((SOLUTIONS, record.solutions), (WRONG, record.wrong)):
            row[column] = json.dumps([*map(asdict, programs)], ensure_ascii=False)
        row[_STATEMENT] = record.statement
        rows.append(row)
        characters += sum(map(len, row.values()))
        if len(rows) == _ROWS or characters > _CHARACTERS:
            yield rows
            rows, characters = [], 0
    if rows:
        yield rows


def write_dataset(path: str, problems: Iterable[Problem]) -> None:
    """Write problems without solutions, as :func:`write_records` does."""
    write_records(path, map(Record, problems))


# Reference solutions to judge


@dataclass(frozen=True, slots=True)
class ReferenceSolution:
    """A solution to judge, as sample ``number`` of its problem."""

    problem: Problem
    number: int
    solution: Solution

    @property
    def completion(self) -> str:
        """The solution in the form of a completion: in a code fence that the code cannot close."""
        fence = "```"
        while fence in self.solution.code:
            fence += "`"
        return f"{fence}{self.solution.language}\n{self.solution.code}\n{fence}\n"


Verifier = Callable[[Sequence[ReferenceSolution]], list[Verdict]]
"""Returns the verdicts on solutions that the judge does not accept or cannot judge."""


# Manifests, lists of findings (JSON lines) and the lock


class ManifestLine(BaseModel):
    """A published problem. ``prompt_length`` is in characters.

    ``revision`` identifies the state of the source: a commit, or the hash of a local file.
    ``contest_date`` is in the line if the problem has one, ``role`` if the data set is for
    training.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    split: str
    problem_id: str
    prompt_sha256: str
    prompt_length: int
    num_test_cases: int
    version: str
    source_url: str
    revision: str
    licence: str
    quality: str
    contest_date: str | None = None
    role: DataRole = DataRole.EVAL


def manifest_line(problem: Problem, **source: str) -> ManifestLine:
    """Describe a problem; ``source`` has version, source_url, revision, licence and role."""
    values = {
        "dataset": problem.dataset,
        "split": problem.split,
        "problem_id": problem.problem_id,
        "prompt_sha256": problem.prompt_sha256,
        "prompt_length": len(problem.prompt),
        "num_test_cases": problem.tests.cases,
        "quality": problem.quality,
        "contest_date": problem.info.contest_date,
    }
    return ManifestLine.model_validate(values | source)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A problem that duplicates another one of its data set.

    ``kind`` is ``exact`` or how the overlap check matched the two; ``similarity`` is 0 to 1.
    """

    dataset: str
    problem_id: str
    place: str
    duplicate_of: str
    kind: str
    similarity: float
    removed: bool


@dataclass(frozen=True, slots=True)
class QualityEntry:
    """A finding of the test audit, or a rejected reference solution."""

    problem_id: str
    finding: QualityFinding
    reason: str


def write_manifest(path: str, lines: Iterable[ManifestLine]) -> None:
    """Write a manifest atomically.

    Raises:
        DataError: The file cannot be written.
    """
    texts = (line.model_dump_json(exclude_defaults=True) for line in lines)
    replace_text(path, "".join(f"{text}\n" for text in texts))


def write_list(path: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write a list atomically, one JSON object per entry; it may be empty.

    Raises:
        DataError: The file cannot be written.
    """
    replace_text(path, "".join(f"{json.dumps(entry)}\n" for entry in entries))


def replace_text(path: str, text: str) -> None:
    """Write a file, a local path or any fsspec URL, atomically; missing folders are created.

    Raises:
        DataError: The file cannot be written.
    """
    try:
        fs, target = fsspec.core.url_to_fs(path)
        with atomic_write(fs, target) as file:
            file.write(text)
    except (OSError, ValueError, ImportError) as error:
        raise data_error(path, f"cannot be written ({error}); check the folder") from None


def write_lock(folder: str, files: Iterable[str]) -> str:
    """Write the lock of data files and manifests; their file names must differ.

    Returns:
        Path of the lock.

    Raises:
        DataError: A file cannot be read, or the lock cannot be written.
    """
    names = {PurePosixPath(path).name: path for path in files}
    hashed = {name: hash_file(names[name]) for name in sorted(names)}
    lock = DataLock(canonical_version=CANONICAL_VERSION, files=hashed)
    path = f"{folder}/{LOCK_NAME}"
    replace_text(path, lock.model_dump_json(indent=2) + "\n")
    return path
