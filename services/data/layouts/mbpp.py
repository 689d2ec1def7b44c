"""MBPP of google-research/mbpp: the full edition, and the sanitized one."""

from collections.abc import Iterator

from pydantic import AliasChoices, Field

from services.data.ids import IdRanges
from services.data.layouts.base import (
    Imported,
    LayoutRow,
    Options,
    make_problem,
    make_solutions,
    parse_row,
)
from services.data.rows.base import Rows
from shared.errors import DataError
from shared.reading import data_error
from shared.schemas import Problem

REGRESSION_IDS = range(11, 211)
# The splits of the MBPP paper, by task_id; what lies beyond is no problem of MBPP.
_SPLITS = {
    range(1, 11): "prompt",
    range(11, 511): "test",
    range(511, 601): "validation",
    range(601, 975): "train",
}
_COLUMNS = ("task_id", "text", "prompt", "test_list", "test_setup_code", "test_imports")


class _MbppRow(LayoutRow):
    """The sanitized edition says ``prompt`` for ``text`` and lists imports for set-up code."""

    task_id: int
    text: str = Field(validation_alias=AliasChoices("text", "prompt"))
    test_list: list[str]
    test_setup_code: str = ""
    test_imports: list[str] = Field(default_factory=list)
    code: str | None = None

    @property
    def setup_code(self) -> str:
        return self.test_setup_code or "\n".join(self.test_imports)

    @property
    def prompt(self) -> str:
        # The tests belong to the question: the function's name and arguments stand only there.
        tests = "\n".join(self.test_list)
        return f"{self.text}\n\nThe code has to pass these assertions:\n{tests}"

    @property
    def solution(self) -> str | None:
        """The code, whose lines end in a carriage return and a line feed in the full edition."""
        return self.code and self.code.replace("\r\n", "\n").replace("\r", "\n")


def columns(options: Options) -> tuple[str, ...]:
    """The fields that ``read`` looks at."""
    return (*_COLUMNS, "code") if options.solutions else _COLUMNS


def read(rows: Rows, options: Options) -> Iterator[Imported]:
    """Read MBPP; takes ``name``, ``split``, ``ids`` and ``solutions``.

    The data set is called ``mbpp_reg`` where ``ids`` are 11-210, the regression set, else
    ``mbpp``. The split is MBPP's own for the number.
    """
    if options.include_generated:
        raise DataError("--include-generated is for CodeContests, not MBPP; leave it out")
    found = False
    for place, fields in rows:
        row = parse_row(_MbppRow, place, fields)
        if options.ids is None or row.task_id in options.ids:
            found = True
            solutions = make_solutions([("python", row.solution)], options.solutions)
            yield Imported(place, _problem(place, row, options), solutions)
    if options.ids is not None and not found:
        cause = f"no task_id is in --ids {options.ids}; MBPP's are 1 to 974"
        raise data_error(options.source or "MBPP", cause)


def _problem(place: str, row: _MbppRow, options: Options) -> Problem:
    return make_problem(
        place,
        dataset=options.name or _dataset_name(options.ids),
        split=options.split or _split(place, row.task_id),
        problem_id=f"mbpp_{row.task_id}",
        prompt=row.prompt,
        data_source="mbpp",
        ground_truth={"test_list": row.test_list, "test_setup_code": row.setup_code},
        sandbox_dataset="mbpp",
        sandbox_id=str(row.task_id),
    )


def _dataset_name(ids: IdRanges | None) -> str:
    return "mbpp_reg" if ids is not None and ids.ranges == (REGRESSION_IDS,) else "mbpp"


def _split(place: str, task_id: int) -> str:
    for numbers, split in _SPLITS.items():
        if task_id in numbers:
            return split
    raise data_error(place, f"task_id {task_id} is in none of MBPP's splits; name one with --split")
