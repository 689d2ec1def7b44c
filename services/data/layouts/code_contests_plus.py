"""Layout of CodeContests+ (ByteDance-Seed/Code-Contests-Plus), whose problems have checkers.

Source: arXiv:2506.05817 and public programs that read the data set. A row has ``id``, ``title``,
``description``, the limits, ``checker`` (C++ with testlib), ``correct_submissions`` of code and
language, and, in the configurations ``1x`` to ``5x``, ``test_cases`` of input and output. The units
of the limits are not documented; ``ContestPlus`` tells them apart by size.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

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
    refuse_generated,
    refuse_ids,
)
from services.data.layouts.code_contests import unique_id
from services.data.rows import Rows
from shared.schemas import Problem, ProblemInfo

_COLUMNS = (
    "id", "title", "description", "time_limit", "memory_limit", "checker", "test_cases",
)  # fmt: skip
# Names of languages in the submissions, preferred first.
_LANGUAGES = {"py3": "python", "python3": "python", "python": "python", "cpp": "cpp", "c++": "cpp"}
_MAX_SECONDS = 100
_MIB = 1024 * 1024
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Test(LayoutRow):
    input: str
    output: str


class _Submission(LayoutRow):
    code: str
    language: str


class ContestPlus(LayoutRow):
    """Row of the data set.

    ``time_limit`` is in milliseconds, or up to 100 in seconds; ``memory_limit`` in MiB, or from
    1 MiB on in bytes. Zero means unknown.
    """

    id: str
    title: str = ""
    description: str
    time_limit: _Number | None = None
    memory_limit: _Number | None = None
    checker: str | None = None
    test_cases: list[_Test] | None = None
    correct_submissions: list[_Submission] | None = None

    @property
    def name(self) -> str:
        """The problem's name as in CodeContests."""
        return f"{self.id}. {self.title}" if self.title.strip() else self.id

    @property
    def seconds(self) -> float | None:
        limit = self.time_limit or None
        return limit / 1000 if limit is not None and limit > _MAX_SECONDS else limit

    @property
    def memory(self) -> int | None:
        limit = self.memory_limit or None
        return limit if limit is None else int(limit if limit >= _MIB else limit * _MIB)

    def solutions_by_language(self) -> Iterator[tuple[str, str]]:
        """Yield (language, code), the preferred language first, otherwise in the row's order."""
        for wanted, language in _LANGUAGES.items():
            for found in self.correct_submissions or ():
                if found.language.lower() == wanted:
                    yield language, found.code


def _columns(options: Options) -> tuple[str, ...]:
    return (*_COLUMNS, "correct_submissions") if options.solutions else _COLUMNS


def _read(rows: Rows, options: Options) -> Iterator[Imported | Dropped]:
    """Read CodeContests+; accepts ``name``, ``split`` and ``solutions``.

    A row without test cases is dropped. Solutions are Python 3 first, then C++.
    """
    refuse_ids("CodeContests+", options)
    refuse_generated("CodeContests+", options)
    named: dict[str, str] = {}
    for place, fields in rows:
        row = parse_row(ContestPlus, place, fields)
        problem_id = unique_id(place, row.name, row.description, named)
        if not row.test_cases:
            reason = "no test cases; the configurations 1x to 5x have them"
            yield Dropped(place, problem_id, reason)
            continue
        solutions = make_solutions(row.solutions_by_language(), options.solutions)
        yield Imported(place, _problem(place, row, problem_id, options), solutions)


def _problem(place: str, row: ContestPlus, problem_id: str, options: Options) -> Problem:
    tests = row.test_cases or []
    ground_truth: dict[str, object] = {
        "inputs": [test.input for test in tests],
        "outputs": [test.output for test in tests],
    }
    if row.checker and row.checker.strip():
        ground_truth |= {"checker_source": row.checker, "checker_language": "cpp"}
    info = ProblemInfo(time_limit=row.seconds, memory_limit=row.memory, generated_tests=len(tests))
    return make_problem(
        place,
        dataset=options.name or "codecontests_plus",
        split=options.split or "train",
        problem_id=problem_id,
        prompt=row.description,
        data_source="codecontests_plus",
        ground_truth=ground_truth,
        sandbox_dataset="code_contests",
        sandbox_id=problem_id,
        extra_info=info_text(info),
    )


CODE_CONTESTS_PLUS = Layout(_columns, _read)
