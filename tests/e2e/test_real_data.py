"""Public data with known answers, judged end to end through queue, workers and sandbox."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from services.data.importer import import_dataset
from tests.e2e import plumb

pytestmark = [pytest.mark.e2e, pytest.mark.real_data, pytest.mark.timeout(900)]

# The oracle took the last block of whatever label; verl's rule, the last one labelled python.
_OTHER_CODE_EXTRACTED = {
    "1582_F1. Korney Korneevich and XOR (easy version)",
    "1586_F. Defender of Childhood Dreams",
}
# All 89 answers without a time-out take ten minutes on two cores; a part of them is enough here.
_EVERY = 7


def read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def judged(data: Path, completions: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    file = folder / "completions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in completions))
    arguments = ["judge", "--data", str(data), "--completions", str(file), "--embedded"]
    done = plumb.plumb(plumb.command(*arguments, "--output", str(folder / "out")), timeout=850)
    assert done.returncode == 0, done.stderr
    verdicts = plumb.read_jsonl(folder / "out" / "verdicts.jsonl")
    assert len(verdicts) == len(completions)
    return verdicts


@pytest.mark.parametrize("answers", ["gemini_direct", "chatgpt_cot"])
def test_humaneval_answers_are_judged_as_the_official_test_does(
    answers: str, real_data: Path, tmp_path: Path
) -> None:
    data = import_dataset("humaneval", str(real_data / "HumanEval.jsonl.gz"), tmp_path).path
    recorded = read(real_data / f"humaneval_completions_{answers}.jsonl.gz")
    completions = [{"problem_id": r["task_id"], "completion": r["response"]} for r in recorded]
    passed = {r["task_id"]: r["passed"] for r in recorded}
    verdicts = judged(data, completions, tmp_path)
    differing = [v["problem_id"] for v in verdicts if v["accepted"] != passed[v["problem_id"]]]
    assert differing == []


def test_canonical_solutions_of_humaneval_are_accepted(real_data: Path, tmp_path: Path) -> None:
    source = real_data / "HumanEval.jsonl.gz"
    data = import_dataset("humaneval", str(source), tmp_path).path
    completions = [
        {"problem_id": r["task_id"], "completion": r["canonical_solution"]} for r in read(source)
    ]
    verdicts = judged(data, completions, tmp_path)
    assert [v["problem_id"] for v in verdicts if not v["accepted"]] == []


def test_reference_solutions_of_mbpp_are_accepted(real_data: Path, tmp_path: Path) -> None:
    source = real_data / "mbpp.jsonl"
    data = import_dataset("mbpp", str(source), tmp_path).path
    completions = [
        {"problem_id": f"mbpp_{r['task_id']}", "completion": f"```python\n{r['code']}\n```"}
        for r in plumb.read_jsonl(source)
    ]
    verdicts = judged(data, completions, tmp_path)
    assert len(verdicts) == 974
    assert [v["problem_id"] for v in verdicts if not v["accepted"]] == []


def test_codecontests_answers_pass_as_many_tests_as_the_oracle_says(
    real_data: Path, tmp_path: Path
) -> None:
    source = real_data / "code_contests_test_40.jsonl.gz"
    data = import_dataset("code_contests", str(source), tmp_path, include_generated=True).path
    recorded = read(real_data / "code_contests_completions.jsonl.gz")
    chosen = [
        r
        for r in recorded
        if not {"TLE", "SKIP"} & r["oracle"]["counts"].keys()
        and r["problem"] not in _OTHER_CODE_EXTRACTED
    ][::_EVERY]
    completions = [
        {"problem_id": r["problem"], "completion": r["response"], "sample_index": index}
        for index, r in enumerate(chosen)
    ]
    verdicts = judged(data, completions, tmp_path)
    # The oracle leaves the public tests out, which come first.
    found = {
        v["sample_index"]: sum(
            code == 1 for code in v["case_codes"][-chosen[v["sample_index"]]["oracle"]["n"] :]
        )
        for v in verdicts
    }
    assert found == {index: r["oracle"]["exact"] for index, r in enumerate(chosen)}
