"""Public data with known answers, judged end to end by queue, workers and sandbox."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from services.data.importer import import_dataset
from services.data.layouts.base import Options
from tests.e2e import plumb

pytestmark = [pytest.mark.e2e, pytest.mark.real_data, pytest.mark.timeout(900)]

SHARES = pytest.mark.parametrize(
    "share",
    [
        pytest.param(slice(3, None, 10), id="a tenth"),
        pytest.param(slice(None), id="all", marks=pytest.mark.nightly),
    ],
)
# The oracle took the last block of whatever label, which is an example of output in these two
# answers; we take the last one labelled python.
_OTHER_CODE_EXTRACTED = {
    "1582_F1. Korney Korneevich and XOR (easy version)",
    "1586_F. Defender of Childhood Dreams",
}
# One of them takes all the memory that there is, a hundred times.
_MEMORY = "sandbox.memory_limit_mb=256"


def read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def judged(
    data: Path, completions: Sequence[dict[str, Any]], folder: Path, *options: str
) -> list[dict[str, Any]]:
    file = folder / "completions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in completions))
    arguments = ["judge", "--data", str(data), "--completions", str(file), "--embedded"]
    done = plumb.plumb(
        plumb.command(*arguments, "--output", str(folder / "out"), *options), timeout=850
    )
    assert done.returncode == 0, done.stderr
    verdicts = plumb.read_jsonl(folder / "out" / "verdicts.jsonl")
    assert len(verdicts) == len(completions)
    return verdicts


@pytest.mark.nightly  # tests/judge judges a share of them
@pytest.mark.parametrize("answers", ["gemini_direct", "chatgpt_cot"])
def test_humaneval_answers_are_judged_as_the_official_test_does(
    answers: str, real_data: Path, tmp_path: Path
) -> None:
    data = import_dataset(
        "humaneval", str(real_data / "HumanEval.jsonl.gz"), tmp_path, Options()
    ).path
    recorded = read(real_data / f"humaneval_completions_{answers}.jsonl.gz")
    completions = [{"problem_id": r["task_id"], "completion": r["response"]} for r in recorded]
    passed = {r["task_id"]: r["passed"] for r in recorded}
    verdicts = judged(data, completions, tmp_path)
    differing = [v["problem_id"] for v in verdicts if v["accepted"] != passed[v["problem_id"]]]
    assert differing == []


@pytest.mark.nightly
def test_canonical_solutions_of_humaneval_are_accepted(real_data: Path, tmp_path: Path) -> None:
    source = real_data / "HumanEval.jsonl.gz"
    data = import_dataset("humaneval", str(source), tmp_path, Options()).path
    completions = [
        {"problem_id": r["task_id"], "completion": r["canonical_solution"]} for r in read(source)
    ]
    verdicts = judged(data, completions, tmp_path)
    assert [v["problem_id"] for v in verdicts if not v["accepted"]] == []


@pytest.mark.nightly
def test_reference_solutions_of_mbpp_are_accepted(real_data: Path, tmp_path: Path) -> None:
    source = real_data / "mbpp.jsonl"
    data = import_dataset("mbpp", str(source), tmp_path, Options()).path
    completions = [
        {"problem_id": f"mbpp_{r['task_id']}", "completion": f"```python\n{r['code']}\n```"}
        for r in plumb.read_jsonl(source)
    ]
    verdicts = judged(data, completions, tmp_path)
    assert len(verdicts) == 974
    assert [v["problem_id"] for v in verdicts if not v["accepted"]] == []


def as_the_oracle_read_it(recorded: dict[str, Any]) -> str:
    """The answer; where the oracle took another of its blocks, that one as the only program."""
    response: str = recorded["response"]
    if recorded["problem"] not in _OTHER_CODE_EXTRACTED:
        return response
    return f"```python\n{response.split('```')[-2]}```"


@pytest.fixture
def contest(real_data: Path, tmp_path: Path) -> Path:
    source = str(real_data / "code_contests_test_40.jsonl.gz")
    return import_dataset("code_contests", source, tmp_path, Options(include_generated=True)).path


def on_generated_tests(verdict: dict[str, Any], oracle: dict[str, Any]) -> list[int]:
    # The oracle leaves the public tests out, which come first.
    codes: list[int] = verdict["case_codes"][-oracle["n"] :]
    return codes


@SHARES
def test_codecontests_answers_pass_the_tests_that_the_oracle_says(
    contest: Path, real_data: Path, tmp_path: Path, share: slice
) -> None:
    recorded = read(real_data / "code_contests_completions.jsonl.gz")[share]
    completions = [
        {"problem_id": r["problem"], "completion": as_the_oracle_read_it(r), "sample_index": index}
        for index, r in enumerate(recorded)
    ]
    # As the oracle, which ran no more than four cases into their time limit.
    limits = ["sandbox.timeout=5", "judge.max_timeouts=4", _MEMORY]
    verdicts = judged(contest, completions, tmp_path, *limits)
    correct = {v["sample_index"]: on_generated_tests(v, oracle_of(recorded, v)) for v in verdicts}
    passed = {index: codes.count(1) for index, codes in correct.items()}
    assert passed == {index: r["oracle"]["tokens"] for index, r in enumerate(recorded)}
    accepted = {index for index, codes in correct.items() if set(codes) == {1}}
    right = {i for i, r in enumerate(recorded) if r["oracle"]["tokens"] == r["oracle"]["n"]}
    assert accepted == right
    assert 0 < len(right) < len(recorded)


def oracle_of(recorded: Sequence[dict[str, Any]], verdict: dict[str, Any]) -> dict[str, Any]:
    oracle: dict[str, Any] = recorded[verdict["sample_index"]]["oracle"]
    return oracle
