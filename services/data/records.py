"""Prepared data sets as parquet: problems with their reference solutions, written atomically."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from services.data.layouts.base import Record, Solution
from shared.datasets import SCHEMA, SOLUTIONS, WRONG, problem_fields, problem_rows
from shared.errors import data_error
from shared.files import atomic_write
from shared.schemas import MbppTests, Problem, Verdict

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


class DatasetWriter:
    """Adds problems to a parquet file; created by :func:`writing_dataset`.

    ``count`` is the number of problems added.
    """

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self.count = 0
        self._writer = writer
        self._rows: list[dict[str, str]] = []
        self._characters = 0

    def add(self, record: Record) -> None:
        """Add a problem, which is not validated again, with its solutions."""
        row = {name: getattr(record.problem, name) for name in SCHEMA.names}
        for column, programs in ((SOLUTIONS, record.solutions), (WRONG, record.wrong)):
            row[column] = json.dumps([*map(asdict, programs)], ensure_ascii=False)
        row[_STATEMENT] = record.statement
        self._rows.append(row)
        self._characters += sum(map(len, row.values()))
        self.count += 1
        if len(self._rows) == _ROWS or self._characters > _CHARACTERS:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._writer.write_batch(pa.RecordBatch.from_pylist(self._rows, schema=_SCHEMA))
        self._rows, self._characters = [], 0


@contextmanager
def writing_dataset(path: str) -> Iterator[DatasetWriter]:
    """Open a parquet file for atomic replacement, which happens when the block succeeds.

    Args:
        path: A local path or any fsspec URL; missing folders are created.

    Raises:
        DataError: The file cannot be written, or no problem was added.
    """
    try:
        fs, target = fsspec.core.url_to_fs(path)
        if fs.isdir(target):
            raise IsADirectoryError("a folder has that name")
        with atomic_write(fs, target, "wb") as file:
            with pq.ParquetWriter(file, _SCHEMA, compression="zstd") as parquet:
                writer = DatasetWriter(parquet)
                yield writer
                writer.flush()
            if not writer.count:
                raise data_error(path, "no problem to write; an empty data set is not readable")
    except UnicodeEncodeError as error:
        cause = f"a text has a character that UTF-8 cannot encode ({error.reason}); remove it"
        raise data_error(path, cause) from None
    except (OSError, ValueError, ImportError) as error:
        raise data_error(path, f"cannot be written ({error}); check the folder") from None


def write_dataset(path: str, problems: Sequence[Problem]) -> None:
    """Write problems, which are not validated again, as :func:`writing_dataset` does."""
    with writing_dataset(path) as writer:
        for problem in problems:
            writer.add(Record(problem))


# Reference solutions to judge


@dataclass(frozen=True, slots=True)
class ReferenceSolution:
    """A solution to judge, as sample ``number`` - 1 of its problem."""

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
