"""Plumbline's own layout: a JSON object a line with the fields of ``Problem``."""

from collections.abc import Iterator
from typing import Any

from services.data.sources.base import Imported, Options, Row, make_problem, parse_row, refuse
from shared.completions import data_error, read_json_lines


class _ProblemRow(Row):
    """``ground_truth`` is an object or its JSON text; ``prompt_sha256`` is worked out here."""

    dataset: str
    split: str
    problem_id: str
    prompt: str
    data_source: str
    ground_truth: dict[str, Any] | str
    difficulty: str
    sandbox_dataset: str
    sandbox_id: str


def read(source: str, options: Options) -> Iterator[Imported]:
    """Read our own layout; takes ``name`` and ``split``, which the rows may then leave out.

    Without ``name`` every row has to name the same data set, for a file holds one.
    """
    refuse("our own layout", options)
    given = {"dataset": options.name, "split": options.split}
    replaced = {field: value for field, value in given.items() if value is not None}
    dataset = options.name
    for number, fields in read_json_lines(source):
        place = f"{source}:{number}"
        row = parse_row(_ProblemRow, place, {**fields, **replaced})
        dataset = dataset or row.dataset
        if row.dataset != dataset:
            cause = f"data set {row.dataset!r}, but the rows before are of {dataset!r}"
            raise data_error(place, f"{cause}; split the file or give one name with --name")
        yield make_problem(place, **row.model_dump())
