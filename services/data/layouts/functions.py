"""Layouts of data sets that test Python functions: HumanEval and MBPP.

HumanEval is read as openai/human-eval publishes it (JSON lines) or as on the hub; MBPP of
google-research/mbpp in its full and its sanitized edition.
"""

from collections.abc import Iterator

from pydantic import AliasChoices, Field

from services.data.config import IdRanges
from services.data.layouts.base import (
    Imported,
    Layout,
    LayoutRow,
    Options,
    make_problem,
    make_solutions,
    parse_row,
    refuse_dates,
    refuse_generated,
    refuse_ids,
)
from services.data.rows import Rows
from shared.errors import data_error
from shared.schemas import Problem

# HumanEval

_HUMANEVAL_COLUMNS = ("task_id", "prompt", "entry_point", "test")


class _HumanEvalRow(LayoutRow):
    """``canonical_solution`` is a function body that continues the prompt."""

    task_id: str
    prompt: str
    entry_point: str
    test: str
    canonical_solution: str | None = None

    @property
    def solution(self) -> str | None:
        return None if self.canonical_solution is None else self.prompt + self.canonical_solution


def _humaneval_columns(options: Options) -> tuple[str, ...]:
    wanted = ("canonical_solution",) if options.solutions else ()
    return (*_HUMANEVAL_COLUMNS, *wanted)


def _read_humaneval(rows: Rows, options: Options) -> Iterator[Imported]:
    """Read HumanEval; accepts ``name``, ``split`` and ``solutions``."""
    refuse_ids("HumanEval", options)
    refuse_generated("HumanEval", options)
    refuse_dates("HumanEval", options)
    for place, fields in rows:
        row = parse_row(_HumanEvalRow, place, fields)
        problem = make_problem(
            place,
            dataset=options.name or "humaneval",
            split=options.split or "test",
            problem_id=row.task_id,
            prompt=row.prompt,
            data_source="humaneval",
            ground_truth={"test": row.test, "entry_point": row.entry_point, "prompt": row.prompt},
            sandbox_dataset="humaneval_python",
            sandbox_id=row.task_id,
        )
        yield Imported(
            place, problem, make_solutions([("python", row.solution)], options.solutions)
        )


HUMANEVAL = Layout(_humaneval_columns, _read_humaneval)

# MBPP

REGRESSION_IDS = range(11, 211)
# The splits of the MBPP paper, by task_id.
_SPLITS = {
    range(1, 11): "prompt",
    range(11, 511): "test",
    range(511, 601): "validation",
    range(601, 975): "train",
}
_MBPP_COLUMNS = ("task_id", "text", "prompt", "test_list", "test_setup_code", "test_imports")


class _MbppRow(LayoutRow):
    """The sanitized edition has ``prompt`` and ``test_imports`` for ``text`` and setup code."""

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
        # The tests are part of the prompt: only they name the function and its arguments.
        tests = "\n".join(self.test_list)
        return f"{self.text}\n\nThe code has to pass these assertions:\n{tests}"

    @property
    def solution(self) -> str | None:
        """The code with ``\\n`` line ends; the full edition uses carriage returns."""
        return self.code and self.code.replace("\r\n", "\n").replace("\r", "\n")


def _mbpp_columns(options: Options) -> tuple[str, ...]:
    return (*_MBPP_COLUMNS, "code") if options.solutions else _MBPP_COLUMNS


def _read_mbpp(rows: Rows, options: Options) -> Iterator[Imported]:
    """Read MBPP; accepts ``name``, ``split``, ``ids`` and ``solutions``.

    The data set is named ``mbpp_reg`` for ``ids`` 11-210, the regression set, otherwise ``mbpp``.
    The split is MBPP's own for the number.
    """
    refuse_generated("MBPP", options)
    refuse_dates("MBPP", options)
    found = False
    for place, fields in rows:
        row = parse_row(_MbppRow, place, fields)
        if options.ids is None or row.task_id in options.ids:
            found = True
            solutions = make_solutions([("python", row.solution)], options.solutions)
            yield Imported(place, _mbpp_problem(place, row, options), solutions, row.text)
    if options.ids is not None and not found:
        cause = f"no task_id is in --ids {options.ids}; MBPP's are 1 to 974"
        raise data_error(options.source or "MBPP", cause)


def _mbpp_problem(place: str, row: _MbppRow, options: Options) -> Problem:
    return make_problem(
        place,
        dataset=options.name or _mbpp_name(options.ids),
        split=options.split or _mbpp_split(place, row.task_id),
        problem_id=f"mbpp_{row.task_id}",
        prompt=row.prompt,
        data_source="mbpp",
        ground_truth={"test_list": row.test_list, "test_setup_code": row.setup_code},
        sandbox_dataset="mbpp",
        sandbox_id=str(row.task_id),
    )


def _mbpp_name(ids: IdRanges | None) -> str:
    return "mbpp_reg" if ids is not None and ids.ranges == (REGRESSION_IDS,) else "mbpp"


def _mbpp_split(place: str, task_id: int) -> str:
    for numbers, split in _SPLITS.items():
        if task_id in numbers:
            return split
    raise data_error(place, f"task_id {task_id} is in none of MBPP's splits; set one with --split")


MBPP = Layout(_mbpp_columns, _read_mbpp)
