"""Layout of google-deepmind/code_contests, from JSON, parquet or the hub."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from services.data.layouts.base import (
    Dropped,
    Imported,
    Layout,
    LayoutRow,
    Options,
    info_text,
    make_problem,
    make_solutions,
    parse_row,
    refuse_dates,
    refuse_ids,
)
from services.data.rows import Rows
from shared.errors import DataError, data_error
from shared.schemas import Problem, ProblemInfo, sha256

_NANOS = 1_000_000_000
# The data set's numbers of the languages that solutions are taken from, preferred first; Python 2
# (1) and Java (4) are skipped.
_LANGUAGES = {3: "python", 2: "cpp"}


def _as_lists(value: object) -> object:
    """Convert a list of structs into a struct of lists; libraries write either form."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        return value
    names: dict[str, list[Any]] = {"input": [], "output": [], "language": [], "solution": []}
    for entry in value:
        for name in names.keys() & entry.keys():
            names[name].append(entry[name])
    return names


class _Tests(LayoutRow):
    input: list[str]
    output: list[str]


class _Solutions(LayoutRow):
    language: list[int]
    solution: list[str]


class _Duration(LayoutRow):
    seconds: int | None = Field(default=None, ge=0)
    nanos: int | None = Field(default=None, ge=0)


Tests = Annotated[_Tests, BeforeValidator(_as_lists)]
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Contest(LayoutRow):
    """Row of the data set.

    ``time_limit`` is a struct of seconds and nanoseconds, or a number of seconds. A limit of zero
    means unknown; blank tags are skipped.
    """

    name: str
    description: str
    difficulty: int | str | None = None
    cf_tags: list[str] | None = None
    time_limit: _Duration | _Seconds | None = None
    memory_limit_bytes: int | None = Field(default=None, ge=0)
    public_tests: Tests
    private_tests: Tests
    generated_tests: Tests = _Tests(input=[], output=[])
    solutions: Annotated[_Solutions, BeforeValidator(_as_lists)] | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(tag for tag in self.cf_tags or () if tag.strip())

    @property
    def seconds(self) -> float | None:
        limit = self.time_limit
        if isinstance(limit, _Duration):
            limit = (limit.seconds or 0) + (limit.nanos or 0) / _NANOS
        return limit or None

    @property
    def memory(self) -> int | None:
        return self.memory_limit_bytes or None

    def solutions_by_language(self) -> Iterator[tuple[str, str]]:
        """Yield (language, code), the preferred language first, otherwise in the row's order."""
        if self.solutions is None:
            return
        pairs = list(zip(self.solutions.language, self.solutions.solution, strict=True))
        for number, language in _LANGUAGES.items():
            yield from ((language, code) for found, code in pairs if found == number)


class ContestWithGenerated(Contest):
    """Row whose generated tests are required, for imports that include them."""

    generated_tests: Tests


SPLITS = ("valid", "test", "train")
# The data set numbers its difficulties: seven words, then Codeforces' letters A to V.
_WORDS = ("unknown", "easy", "medium", "hard", "harder", "hardest", "external")
_DIFFICULTIES: tuple[str, ...] = (*_WORDS, *"ABCDEFGHIJKLMNOPQRSTUV")
_INFO = ("difficulty", "cf_tags", "time_limit", "memory_limit_bytes")
_TESTS = ("public_tests", "private_tests")
_GENERATED = "generated_tests"


def _columns(options: Options) -> tuple[str, ...]:
    # Generated tests and solutions are large, so they are read only on request.
    wanted = ("solutions",) if options.solutions else ()
    return ("name", "description", *_INFO, *_test_fields(options), *wanted)


def _read(rows: Rows, options: Options) -> Iterator[Imported | Dropped]:
    """Read CodeContests; accepts all options except ``ids``. ``split`` defaults to ``test``.

    A row's tests are its public, then its private, then (on request) its generated ones. A row
    without tests is dropped. Solutions are Python 3 first, then C++.
    """
    split = options.split or "test"
    _check_options(split, options)
    kind = ContestWithGenerated if options.include_generated else Contest
    named: dict[str, str] = {}
    for place, fields in rows:
        row = parse_row(kind, place, fields)
        _check_lengths(place, row, options)
        problem_id = unique_id(place, row.name, row.description, named)
        if not any(_counts(row, options)):
            yield Dropped(place, problem_id, _why_no_tests(options.include_generated))
            continue
        problem = _problem(place, row, problem_id, split, options)
        solutions = make_solutions(row.solutions_by_language(), options.solutions)
        yield Imported(place, problem, solutions)


def problem_id_of(name: str) -> str:
    """Derive the problem_id from a row's ``name`` by collapsing white space."""
    return " ".join(name.split())


def _check_options(split: str, options: Options) -> None:
    refuse_ids("CodeContests", options)
    refuse_dates("CodeContests", options)
    if split not in SPLITS:
        known = ", ".join(SPLITS)
        raise DataError(f"--split {split!r} is not a split of CodeContests; choose one of {known}")


def _check_lengths(place: str, row: Contest, options: Options) -> None:
    for field in _test_fields(options):
        tests = getattr(row, field)
        if len(tests.input) != len(tests.output):
            counts = f"{len(tests.input)} inputs but {len(tests.output)} outputs"
            raise data_error(place, f"problem {row.name!r}: {field} has {counts}; fix the row")
    found = row.solutions
    if found and len(found.language) != len(found.solution):
        counts = f"{len(found.language)} languages but {len(found.solution)} solutions"
        raise data_error(place, f"problem {row.name!r}: solutions has {counts}; fix the row")


def _problem(place: str, row: Contest, problem_id: str, split: str, options: Options) -> Problem:
    tests = [getattr(row, field) for field in _test_fields(options)]
    inputs = [text for part in tests for text in part.input]
    outputs = [text for part in tests for text in part.output]
    return make_problem(
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
        extra_info=_info(row, options),
    )


def _info(row: Contest, options: Options) -> str:
    public, private, generated = _counts(row, options)
    info = ProblemInfo(
        tags=row.tags,
        time_limit=row.seconds,
        memory_limit=row.memory,
        public_tests=public,
        private_tests=private,
        generated_tests=generated,
    )
    return info_text(info)


def _counts(row: Contest, options: Options) -> tuple[int, int, int]:
    """Count the public, private and generated tests that the problem gets."""
    generated = len(row.generated_tests.input) if options.include_generated else 0
    return len(row.public_tests.input), len(row.private_tests.input), generated


def _test_fields(options: Options) -> tuple[str, ...]:
    return (*_TESTS, _GENERATED) if options.include_generated else _TESTS


def unique_id(place: str, name: str, description: str, named: dict[str, str]) -> str:
    """Derive the id of a problem; a hash of the text is added to a name that an earlier one has.

    Raises:
        DataError: The name is empty.
    """
    problem_id = problem_id_of(name)
    if not problem_id:
        raise data_error(place, "name is empty; give the problem a name")
    digest = sha256(description)
    if named.setdefault(problem_id, digest) == digest:
        return problem_id
    return f"{problem_id} #{digest[:8]}"


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


CODE_CONTESTS = Layout(_columns, _read)
