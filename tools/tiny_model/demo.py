"""Reader of the demo's problems and recorded answers.

Uses the standard library only, because a model for a GPU machine is created in an environment that
has torch and lacks Plumbline's dependencies.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "demo"


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    completion: str
    complete: bool  # False if truncated at the length limit
    right: bool


@dataclass(frozen=True, slots=True)
class DemoProblem:
    dataset: str
    problem_id: str
    prompt: str
    ground_truth: str  # JSON
    solution: str  # bare Python
    recorded: RecordedAnswer

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.problem_id}"


def read_demo(folder: Path) -> list[DemoProblem]:
    """Read ``problems/*.jsonl`` and ``completions.jsonl`` of a folder like ``demo/``."""
    answers = {_key(row): _answer(row) for row in _rows(folder / "completions.jsonl")}
    files = sorted((folder / "problems").glob("*.jsonl"))
    return [_problem(row, answers[_key(row)]) for file in files for row in _rows(file)]


def texts(problems: Sequence[DemoProblem]) -> list[str]:
    """Collect training data for a tokenizer: prompts, solutions and answers."""
    return [text for p in problems for text in (p.prompt, p.solution, p.recorded.completion)]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _key(row: dict[str, Any]) -> tuple[str, str]:
    return row["dataset"], row["problem_id"]


def _answer(row: dict[str, Any]) -> RecordedAnswer:
    return RecordedAnswer(
        completion=row["completion"],
        complete=row["finish_reason"] != "length",
        right=row["expected_status"] == "success",
    )


def _problem(row: dict[str, Any], recorded: RecordedAnswer) -> DemoProblem:
    return DemoProblem(
        dataset=row["dataset"],
        problem_id=row["problem_id"],
        prompt=row["prompt"],
        ground_truth=json.dumps(row["ground_truth"]),
        solution=row["reference_solution"],
        recorded=recorded,
    )
