"""Recorded answers for benchmarks: public data if available, else the demo's."""

import gzip
import json
import os
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from shared.schemas import StdioTests

FOLDER = "PLUMBLINE_REAL_DATA"
_REPOSITORY = Path(__file__).parents[2]
_DEMO = _REPOSITORY / "demo"


def stdio_answers(count: int, cases: int) -> list[tuple[StdioTests, str]]:
    """Tests of as many cases each, and completions whose programs end of themselves."""
    folder = Path(os.environ.get(FOLDER) or _REPOSITORY.parent / "shared" / "data")
    answers = [*(_contest_answers(folder, cases) if folder.is_dir() else _demo_answers(cases))]
    step = max(1, len(answers) // count)  # not all of the same few problems
    return answers[::step][:count]


def _contest_answers(folder: Path, cases: int) -> Iterator[tuple[StdioTests, str]]:
    problems = {row["name"]: row for row in _lines(folder / "code_contests_test_40.jsonl.gz")}
    for row in _lines(folder / "code_contests_completions.jsonl.gz"):
        inputs, outputs = _contest_cases(problems[row["problem"]])
        if len(inputs) >= cases and not {"TLE", "SKIP"} & row["oracle"]["counts"].keys():
            yield StdioTests(inputs=inputs[:cases], outputs=outputs[:cases]), row["response"]


def _contest_cases(row: dict[str, Any]) -> tuple[list[str], list[str]]:
    kinds = [row[f"{kind}_tests"] for kind in ("public", "private", "generated")]
    inputs = [text for kind in kinds for text in kind["input"]]
    return inputs, [text for kind in kinds for text in kind["output"]]


def _demo_answers(cases: int) -> Iterator[tuple[StdioTests, str]]:
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
            yield tests, recorded["completion"]


def _lines(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in text.splitlines()]
