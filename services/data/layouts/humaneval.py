"""HumanEval of openai/human-eval, as JSON lines or as on the hub."""

from collections.abc import Iterator

from services.data.layouts.base import (
    Imported,
    LayoutRow,
    Options,
    make_problem,
    make_solutions,
    parse_row,
    refuse,
)
from services.data.rows.base import Rows

_COLUMNS = ("task_id", "prompt", "entry_point", "test")


class _HumanEvalRow(LayoutRow):
    """The canonical solution is a body: it continues the prompt."""

    task_id: str
    prompt: str
    entry_point: str
    test: str
    canonical_solution: str | None = None

    @property
    def solution(self) -> str | None:
        return None if self.canonical_solution is None else self.prompt + self.canonical_solution


def columns(options: Options) -> tuple[str, ...]:
    """The fields that ``read`` looks at."""
    return (*_COLUMNS, "canonical_solution") if options.solutions else _COLUMNS


def read(rows: Rows, options: Options) -> Iterator[Imported]:
    """Read HumanEval; takes ``name``, ``split`` and ``solutions``."""
    refuse("HumanEval", options)
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
