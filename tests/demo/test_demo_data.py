import json
from pathlib import Path
from typing import Any

DEMO = Path(__file__).resolve().parents[2] / "demo"
SETS = ("codecontests_valid", "codecontests_test", "humaneval", "mbpp_reg")
COMMON = {"success", "wrong_answer", "runtime_error", "syntax_error"}
OTHER = {"timeout", "empty_output"}

Row = dict[str, Any]


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


PROBLEMS = {name: rows(DEMO / "problems" / f"{name}.jsonl") for name in SETS}
COMPLETIONS = rows(DEMO / "completions.jsonl")


def test_every_problem_has_one_completion() -> None:
    answered = [(c["dataset"], c["problem_id"]) for c in COMPLETIONS]

    assert {c["sample_index"] for c in COMPLETIONS} == {0}
    assert sorted(answered) == sorted(
        (name, p["problem_id"]) for name, problems in PROBLEMS.items() for p in problems
    )


def test_every_final_status_is_shown() -> None:
    assert {c["expected_status"] for c in COMPLETIONS} == COMMON | OTHER
    for name in SETS:
        shown = {c["expected_status"] for c in COMPLETIONS if c["dataset"] == name}
        assert shown >= COMMON, name


def test_endless_loops_are_few() -> None:
    assert 2 <= sum(c["expected_status"] == "timeout" for c in COMPLETIONS) <= 4
