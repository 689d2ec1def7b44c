"""CodeContests in its public layout: JSON lines, or parquet (one file or a folder of shards)."""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from services.data.sources.base import Dropped, Imported, Options, Row, make_problem, parse_row
from shared.completions import data_error, read_json_lines
from shared.datasets import parquet_files, parquet_rows
from shared.errors import DataError
from shared.schemas import sha256

SPLITS = ("valid", "test", "train")
# The layout numbers its difficulties: six words, then Codeforces' letters A to V.
_WORDS = ("unknown", "easy", "medium", "hard", "harder", "hardest", "external")
_DIFFICULTIES: tuple[str, ...] = (*_WORDS, *"ABCDEFGHIJKLMNOPQRSTUV")
_TESTS = ("public_tests", "private_tests")
_GENERATED = "generated_tests"


class _Tests(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    input: list[str]
    output: list[str]


class _Contest(Row):
    name: str
    description: str
    difficulty: int | str | None = None
    public_tests: _Tests
    private_tests: _Tests
    generated_tests: _Tests = _Tests(input=[], output=[])


class _ContestWithGenerated(_Contest):
    generated_tests: _Tests


def read(source: str, options: Options) -> Iterator[Imported | Dropped]:
    """Read CodeContests; takes ``name``, ``split`` (default test) and ``include_generated``.

    A row's tests are its public, then its private, then (where wanted) its generated ones. A row
    without any is dropped.
    """
    split = options.split or "test"
    if options.ids is not None:
        raise DataError("--ids selects MBPP's numbers, CodeContests has none; leave it out")
    if split not in SPLITS:
        raise DataError(f"--split {split!r} is none of CodeContests' splits: {', '.join(SPLITS)}")
    kind = _ContestWithGenerated if options.include_generated else _Contest
    named: dict[str, str] = {}
    for place, fields in _rows(source, options.include_generated):
        row = parse_row(kind, place, fields)
        problem_id = _problem_id(place, row, named)
        inputs, outputs = _tests(place, row, options.include_generated)
        if not inputs:
            yield Dropped(place, problem_id, _why_no_tests(options.include_generated))
            continue
        yield make_problem(
            place,
            dataset=options.name or f"codecontests_{split}",
            split=split,
            problem_id=problem_id,
            prompt=row.description,
            data_source="codecontests",
            ground_truth={"inputs": inputs, "outputs": outputs},
            difficulty=_difficulty(row.difficulty),
            sandbox_dataset="code_contests",
            sandbox_id=problem_id,
        )


def problem_id_of(name: str) -> str:
    """The problem_id of a row by its ``name``: the name with its white space made single."""
    return " ".join(name.split())


def _problem_id(place: str, row: _Contest, named: dict[str, str]) -> str:
    """Tell different problems of one name apart by their text; the first keeps the bare name."""
    problem_id = problem_id_of(row.name)
    if not problem_id:
        raise data_error(place, "name is empty; give the problem one")
    digest = sha256(row.description)
    if named.setdefault(problem_id, digest) == digest:
        return problem_id
    return f"{problem_id} #{digest[:8]}"


def _tests(place: str, row: _Contest, include_generated: bool) -> tuple[list[str], list[str]]:
    inputs: list[str] = []
    outputs: list[str] = []
    for field in (*_TESTS, _GENERATED) if include_generated else _TESTS:
        tests: _Tests = getattr(row, field)
        if len(tests.input) != len(tests.output):
            counts = f"{len(tests.input)} inputs but {len(tests.output)} outputs"
            raise data_error(place, f"problem {row.name!r}: {field} has {counts}; mend the row")
        inputs += tests.input
        outputs += tests.output
    return inputs, outputs


def _why_no_tests(include_generated: bool) -> str:
    if include_generated:
        return "no public, private or generated test"
    return "no public or private test; --include-generated adds the generated ones"


def _difficulty(value: int | str | None) -> str:
    if value is None or value == "":
        return _DIFFICULTIES[0]
    if isinstance(value, int) and 0 <= value < len(_DIFFICULTIES):
        return _DIFFICULTIES[value]
    return str(value)


def _rows(source: str, include_generated: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    files = parquet_files(source)
    if not all(file.endswith(".parquet") for file in files):
        for number, fields in read_json_lines(source):
            yield f"{source}:{number}", fields
        return
    tests: Sequence[str] = (*_TESTS, _GENERATED) if include_generated else _TESTS
    for file in files:
        columns = ("name", "description", *tests)
        for number, fields in parquet_rows(file, columns, optional=("difficulty",)):
            yield f"{file}: row {number}", fields
