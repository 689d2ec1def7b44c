"""Plumbline's own layout: the fields of ``Problem`` plus ``reference_solution``."""

import json
from collections.abc import Iterator
from typing import Any

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


class _ProblemRow(LayoutRow):
    """``ground_truth`` and ``extra_info`` are objects or their JSON text.

    ``prompt_sha256`` is computed on import.
    """

    dataset: str
    split: str
    problem_id: str
    prompt: str
    data_source: str
    ground_truth: dict[str, Any] | str
    difficulty: str
    sandbox_dataset: str
    sandbox_id: str
    extra_info: dict[str, Any] | str | None = None
    reference_solution: str | None = None

    @property
    def info(self) -> str:
        if isinstance(self.extra_info, dict):
            return json.dumps(self.extra_info, ensure_ascii=False)
        return self.extra_info or ""


_SOLUTION = "reference_solution"


def _columns(options: Options) -> tuple[str, ...]:
    fields = tuple(_ProblemRow.model_fields)
    return fields if options.solutions else tuple(name for name in fields if name != _SOLUTION)


def _read(rows: Rows, options: Options) -> Iterator[Imported]:
    """Read the rows; accepts ``name``, ``split`` (rows may then omit them) and ``solutions``.

    Without ``name`` all rows must name the same data set, because a file holds one.
    """
    refuse_ids("the jsonl layout", options)
    refuse_generated("the jsonl layout", options)
    refuse_dates("the jsonl layout", options)
    given = {"dataset": options.name, "split": options.split}
    replaced = {field: value for field, value in given.items() if value is not None}
    dataset = options.name
    for place, fields in rows:
        row = parse_row(_ProblemRow, place, {**fields, **replaced})
        dataset = dataset or row.dataset
        if row.dataset != dataset:
            cause = f"data set {row.dataset!r}, but earlier rows are of {dataset!r}"
            raise data_error(place, f"{cause}; split the file or set one name with --name")
        texts = row.model_dump(exclude={"extra_info", _SOLUTION})
        problem = make_problem(place, **texts, extra_info=row.info)
        yield Imported(
            place, problem, make_solutions([("python", row.reference_solution)], options.solutions)
        )


JSONL = Layout(_columns, _read)
