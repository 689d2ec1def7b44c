"""HumanEval.jsonl(.gz) of openai/human-eval."""

from collections.abc import Iterator

from services.data.sources.base import Imported, Options, Row, make_problem, parse_row, refuse
from shared.completions import read_json_lines


class _HumanEvalRow(Row):
    task_id: str
    prompt: str
    entry_point: str
    test: str


def read(source: str, options: Options) -> Iterator[Imported]:
    """Read HumanEval; takes ``name`` and ``split``."""
    refuse("HumanEval", options)
    for number, fields in read_json_lines(source):
        place = f"{source}:{number}"
        row = parse_row(_HumanEvalRow, place, fields)
        yield make_problem(
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
