"""Recorded answers for benchmarks: public data if available, else the demo's."""

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from shared.extraction import extract, extract_verl
from shared.schemas import Problem, StdioTests
from tests.e2e.reward import stdio_problem

FOLDER = "PLUMBLINE_REAL_DATA"
_REPOSITORY = Path(__file__).parents[2]
_DEMO = _REPOSITORY / "demo"


@dataclass(frozen=True, slots=True)
class Answer:
    problem: Problem
    completion: str


def real_data() -> Path | None:
    folder = Path(os.environ.get(FOLDER) or _REPOSITORY.parent / "shared" / "data")
    return folder if folder.is_dir() else None


def stdio_answers(count: int, cases: int) -> list[Answer]:
    """Answers with as many cases each, that end of themselves, start no thread (which no answer
    can in SandboxFusion), and from which verl takes the same program as we do."""
    answers = _contest_answers(cases) if real_data() else _demo_answers(cases)
    kept = [answer for answer in answers if _same_program(answer.completion)]
    usable = [answer for answer in kept if _starts_no_thread(answer.completion)]
    step = max(1, len(usable) // count)  # not all of the same few problems
    return usable[::step][:count]


def _same_program(completion: str) -> bool:
    ours, theirs = extract(completion), extract_verl(completion)
    return ours.found and ours.code.strip() == theirs.code.strip()


def _starts_no_thread(completion: str) -> bool:
    return "threading" not in completion


def _contest_answers(cases: int) -> Iterator[Answer]:
    folder = real_data()
    assert folder is not None
    problems = {row["name"]: row for row in _lines(folder / "code_contests_test_40.jsonl.gz")}
    for row in _lines(folder / "code_contests_completions.jsonl.gz"):
        inputs, outputs = _contest_cases(problems[row["problem"]])
        if len(inputs) >= cases and not {"TLE", "SKIP"} & row["oracle"]["counts"].keys():
            tests = StdioTests(inputs=inputs[:cases], outputs=outputs[:cases])
            yield Answer(stdio_problem(row["problem"], tests, "bench"), row["response"])


def _contest_cases(row: dict[str, Any]) -> tuple[list[str], list[str]]:
    kinds = [row[f"{kind}_tests"] for kind in ("public", "private", "generated")]
    inputs = [text for kind in kinds for text in kind["input"]]
    return inputs, [text for kind in kinds for text in kind["output"]]


def _demo_answers(cases: int) -> Iterator[Answer]:
    files = [_DEMO / f"problems/codecontests_{part}.jsonl" for part in ("valid", "test")]
    rows = {row["problem_id"]: row for file in files for row in _lines(file)}
    for recorded in _lines(_DEMO / "completions.jsonl"):
        row = rows.get(recorded["problem_id"])
        if row and recorded["expected_status"] in ("success", "wrong_answer"):
            truth = row["ground_truth"]
            tests = StdioTests(
                inputs=list(islice(cycle(truth["inputs"]), cases)),
                outputs=list(islice(cycle(truth["outputs"]), cases)),
                fn_name=truth.get("fn_name"),
            )
            yield Answer(stdio_problem(row["problem_id"], tests, "bench"), recorded["completion"])


def _lines(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in text.splitlines()]
