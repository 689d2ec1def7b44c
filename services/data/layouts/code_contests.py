"""CodeContests of google-deepmind/code_contests."""

from collections.abc import Iterator

from services.data.layouts.base import (
    Dropped,
    Imported,
    Options,
    info_text,
    make_problem,
    make_solutions,
    parse_row,
)
from services.data.layouts.code_contests_row import Contest, ContestWithGenerated
from services.data.rows.base import Rows
from shared.errors import DataError
from shared.reading import data_error
from shared.schemas import Problem, ProblemInfo, sha256

SPLITS = ("valid", "test", "train")
# The layout numbers its difficulties: six words, then Codeforces' letters A to V.
_WORDS = ("unknown", "easy", "medium", "hard", "harder", "hardest", "external")
_DIFFICULTIES: tuple[str, ...] = (*_WORDS, *"ABCDEFGHIJKLMNOPQRSTUV")
_INFO = ("difficulty", "cf_tags", "time_limit", "memory_limit_bytes")
_TESTS = ("public_tests", "private_tests")
_GENERATED = "generated_tests"


def columns(options: Options) -> tuple[str, ...]:
    """The fields that ``read`` looks at; a row's generated tests and solutions are huge."""
    wanted = ("solutions",) if options.solutions else ()
    return ("name", "description", *_INFO, *_test_fields(options), *wanted)


def read(rows: Rows, options: Options) -> Iterator[Imported | Dropped]:
    """Read CodeContests; takes all options but ``ids``. ``split`` is test where none is given.

    A row's tests are its public, then its private, then (where wanted) its generated ones. A row
    without any is dropped. Solutions are Python 3 first, then C++.
    """
    split = options.split or "test"
    _check_options(split, options)
    kind = ContestWithGenerated if options.include_generated else Contest
    named: dict[str, str] = {}
    for place, fields in rows:
        row = parse_row(kind, place, fields)
        _check_lengths(place, row, options)
        problem_id = _problem_id(place, row, named)
        if not any(_counts(row, options)):
            yield Dropped(place, problem_id, _why_no_tests(options.include_generated))
            continue
        problem = _problem(place, row, problem_id, split, options)
        solutions = make_solutions(row.solutions_by_language(), options.solutions)
        yield Imported(place, problem, solutions)


def problem_id_of(name: str) -> str:
    """The problem_id of a row by its ``name``: the name with its white space made single."""
    return " ".join(name.split())


def _check_options(split: str, options: Options) -> None:
    if options.ids is not None:
        raise DataError("--ids selects MBPP's numbers, CodeContests has none; leave it out")
    if split not in SPLITS:
        raise DataError(f"--split {split!r} is none of CodeContests' splits: {', '.join(SPLITS)}")


def _check_lengths(place: str, row: Contest, options: Options) -> None:
    for field in _test_fields(options):
        tests = getattr(row, field)
        if len(tests.input) != len(tests.output):
            counts = f"{len(tests.input)} inputs but {len(tests.output)} outputs"
            raise data_error(place, f"problem {row.name!r}: {field} has {counts}; mend the row")
    found = row.solutions
    if found and len(found.language) != len(found.solution):
        counts = f"{len(found.language)} languages but {len(found.solution)} solutions"
        raise data_error(place, f"problem {row.name!r}: solutions has {counts}; mend the row")


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
    """How many public, private and generated tests the problem gets."""
    generated = len(row.generated_tests.input) if options.include_generated else 0
    return len(row.public_tests.input), len(row.private_tests.input), generated


def _test_fields(options: Options) -> tuple[str, ...]:
    return (*_TESTS, _GENERATED) if options.include_generated else _TESTS


def _problem_id(place: str, row: Contest, named: dict[str, str]) -> str:
    """Tell different problems of one name apart by their text; the first keeps the bare name."""
    problem_id = problem_id_of(row.name)
    if not problem_id:
        raise data_error(place, "name is empty; give the problem one")
    digest = sha256(row.description)
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
