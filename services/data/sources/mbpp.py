"""mbpp.jsonl of google-research/mbpp, and its sanitized edition (.json, one array, or JSONL)."""

import json
from collections.abc import Iterator

import fsspec
from pydantic import AliasChoices, Field

from services.data.ids import IdRanges
from services.data.sources.base import Imported, Options, Row, make_problem, parse_row
from shared.completions import data_error, read_json_lines, reading
from shared.errors import DataError

REGRESSION_IDS = range(11, 211)
# The splits of the MBPP paper, by task_id; what lies beyond is no problem of MBPP.
_SPLITS = {
    range(1, 11): "prompt",
    range(11, 511): "test",
    range(511, 601): "validation",
    range(601, 975): "train",
}


class _MbppRow(Row):
    """The sanitized edition says ``prompt`` for ``text`` and lists imports for set-up code."""

    task_id: int
    text: str = Field(validation_alias=AliasChoices("text", "prompt"))
    test_list: list[str]
    test_setup_code: str = ""
    test_imports: list[str] = Field(default_factory=list)

    @property
    def setup_code(self) -> str:
        return self.test_setup_code or "\n".join(self.test_imports)

    @property
    def prompt(self) -> str:
        # The tests belong to the question: the function's name and arguments stand only there.
        tests = "\n".join(self.test_list)
        return f"{self.text}\n\nThe code has to pass these assertions:\n{tests}"


def read(source: str, options: Options) -> Iterator[Imported]:
    """Read MBPP; takes ``name``, ``split`` and ``ids``.

    The data set is called ``mbpp_reg`` where ``ids`` are 11-210, the regression set, else
    ``mbpp``. The split is MBPP's own for the number.
    """
    if options.include_generated:
        raise DataError("--include-generated is for CodeContests, not MBPP; leave it out")
    found = False
    for place, fields in _rows(source):
        row = parse_row(_MbppRow, place, fields)
        if options.ids is None or row.task_id in options.ids:
            found = True
            yield _problem(place, row, options)
    if options.ids is not None and not found:
        raise data_error(source, f"no task_id is in --ids {options.ids}; MBPP's are 1 to 974")


def _problem(place: str, row: _MbppRow, options: Options) -> Imported:
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


def _rows(source: str) -> Iterator[tuple[str, dict[str, object]]]:
    if source.endswith(".json"):
        yield from _array_rows(source)
        return
    for number, fields in read_json_lines(source):
        yield f"{source}:{number}", fields


def _array_rows(source: str) -> Iterator[tuple[str, dict[str, object]]]:
    with reading(source), fsspec.open(source, "rb") as file:
        rows = json.load(file)
    if not isinstance(rows, list):
        raise data_error(source, "not a JSON array; name it .jsonl if it has a problem a line")
    for number, fields in enumerate(rows, start=1):
        place = f"{source}: entry {number}"
        if not isinstance(fields, dict):
            raise data_error(place, "not a JSON object; see that the file is MBPP's")
        yield place, fields
