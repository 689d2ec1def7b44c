"""Prepared problems together with their reference solutions, as a parquet file holds them."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from services.data.layouts.base import Solution
from services.data.overlap.texts import ProblemText
from shared.datasets import COLUMNS, OPTIONAL_COLUMNS, parquet_rows
from shared.reading import data_error
from shared.schemas import Problem

SOLUTIONS = "solutions"


@dataclass(frozen=True, slots=True)
class Record:
    problem: Problem
    solutions: tuple[Solution, ...]


def solutions_text(solutions: tuple[Solution, ...]) -> str:
    """What the column ``solutions`` holds for them."""
    return json.dumps([asdict(solution) for solution in solutions], ensure_ascii=False)


def read_records(path: str) -> Iterator[Record]:
    """Read a prepared file row by row; ids are not checked for being there twice.

    Raises:
        DataError: While iterating: it cannot be read, or is no prepared file.
    """
    for row, values in parquet_rows(path, COLUMNS, (*OPTIONAL_COLUMNS, SOLUTIONS)):
        solutions = values.pop(SOLUTIONS, None)
        try:
            problem = Problem(
                **{name: value for name, value in values.items() if value is not None}
            )
            yield Record(problem, _solutions(solutions))
        except (ValueError, TypeError) as error:
            cause = " ".join(str(error).split())[:200]
            raise data_error(f"{path}: row {row}", f"not as it was prepared: {cause}") from None


def text_of(record: Record, role: str) -> ProblemText:
    """What is compared of a problem."""
    problem = record.problem
    return ProblemText(
        dataset=problem.dataset,
        split=problem.split,
        role=role,
        problem_id=problem.problem_id,
        prompt=problem.prompt,
        prompt_sha256=problem.prompt_sha256,
        solutions=tuple(solution.code for solution in record.solutions),
    )


def _solutions(text: str | None) -> tuple[Solution, ...]:
    return tuple(Solution(**entry) for entry in json.loads(text or "[]"))
