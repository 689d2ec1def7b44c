import json
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).resolve().parents[2] / "demo"
COMMON = {"success", "wrong_answer", "runtime_error", "syntax_error"}
OTHER = {"timeout", "empty_output"}
SETS = {  # name: (split, data_source, sandbox_dataset)
    "codecontests_valid": ("valid", "codecontests", "code_contests"),
    "codecontests_test": ("test", "codecontests", "code_contests"),
    "humaneval": ("test", "humaneval", "humaneval_python"),
    "mbpp_reg": ("valid", "mbpp", "mbpp"),
}
PROBLEM_FIELDS = {
    "dataset",
    "split",
    "problem_id",
    "prompt",
    "data_source",
    "ground_truth",
    "difficulty",
    "sandbox_dataset",
    "sandbox_id",
    "reference_solution",
}
COMPLETION_FIELDS = {
    "dataset",
    "problem_id",
    "sample_index",
    "completion",
    "output_tokens",
    "gen_time",
    "finish_reason",
    "expected_status",
}

Row = dict[str, Any]


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


PROBLEMS = {name: rows(DEMO / "problems" / f"{name}.jsonl") for name in SETS}
COMPLETIONS = rows(DEMO / "completions.jsonl")
EVERY_PROBLEM = [problem for problems in PROBLEMS.values() for problem in problems]
STDIO = [p for p in EVERY_PROBLEM if p["data_source"] == "codecontests"]
HUMANEVAL = [p for p in EVERY_PROBLEM if p["data_source"] == "humaneval"]
MBPP = [p for p in EVERY_PROBLEM if p["data_source"] == "mbpp"]


def test_no_other_data_set_lies_beside_them() -> None:
    assert {path.stem for path in (DEMO / "problems").iterdir()} == set(SETS)


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_large_enough_and_names_itself(name: str) -> None:
    problems = PROBLEMS[name]

    assert len(problems) >= 12
    assert {p["dataset"] for p in problems} == {name}
    assert {(p["split"], p["data_source"], p["sandbox_dataset"]) for p in problems} == {SETS[name]}
    assert {p["difficulty"] for p in problems} == {"easy", "medium", "hard"}


def test_ids_and_prompts_are_unique() -> None:
    problems = [p for each in PROBLEMS.values() for p in each]

    assert len({p["problem_id"] for p in problems}) == len(problems)
    assert len({(p["sandbox_dataset"], p["sandbox_id"]) for p in problems}) == len(problems)
    assert len({p["prompt"] for p in problems}) == len(problems)


def test_a_problem_has_its_fields_and_a_reference_that_compiles() -> None:
    for problem in EVERY_PROBLEM:
        name = problem["problem_id"]
        assert set(problem) == PROBLEM_FIELDS, name
        assert problem["prompt"].strip(), name
        assert isinstance(problem["sandbox_id"], str), name
        compile(problem["reference_solution"], problem["problem_id"], "exec")


def test_a_contest_problem_has_an_output_for_every_input() -> None:
    for problem in STDIO:
        name = problem["problem_id"]
        truth = problem["ground_truth"]

        assert set(truth) == {"inputs", "outputs"}, name
        assert len(truth["inputs"]) == len(truth["outputs"]) >= 8, name
        assert len(set(truth["inputs"])) == len(truth["inputs"]), name
        for text in truth["outputs"]:
            assert text.endswith("\n"), name
            lines = text[:-1].split("\n")
            assert lines == [line.rstrip() for line in lines], name
            assert lines[-1], name


def test_a_contest_prompt_shows_its_first_test_as_the_example() -> None:
    for problem in STDIO:
        name = problem["problem_id"]
        truth = problem["ground_truth"]
        shown, expected = truth["inputs"][0].rstrip(), truth["outputs"][0].rstrip()

        assert problem["prompt"].endswith(f"\n\nInput\n{shown}\n\nOutput\n{expected}\n"), name


def test_a_humaneval_problem_is_a_function_with_a_check() -> None:
    for problem in HUMANEVAL:
        name = problem["problem_id"]
        truth = problem["ground_truth"]

        assert set(truth) == {"test", "entry_point", "prompt"}, name
        assert truth["prompt"] == problem["prompt"], name
        assert f"def {truth['entry_point']}(" in problem["prompt"], name
        assert problem["reference_solution"].startswith(problem["prompt"]), name
        assert truth["test"].startswith("def check(candidate):\n"), name
        assert truth["test"].count("    assert ") >= 6, name
        compile(truth["test"], problem["problem_id"], "exec")


def test_an_mbpp_problem_is_a_sentence_with_asserts() -> None:
    for problem in MBPP:
        name = problem["problem_id"]
        truth = problem["ground_truth"]

        assert set(truth) == {"test_list", "test_setup_code"}, name
        assert len(truth["test_list"]) >= 3, name
        assert all(test.startswith("assert ") for test in truth["test_list"]), name
        compile("\n".join([truth["test_setup_code"], *truth["test_list"]]), "tests", "exec")


def test_every_problem_has_one_completion() -> None:
    answered = [(c["dataset"], c["problem_id"]) for c in COMPLETIONS]

    assert {c["sample_index"] for c in COMPLETIONS} == {0}
    assert sorted(answered) == sorted(
        (name, p["problem_id"]) for name, problems in PROBLEMS.items() for p in problems
    )


def test_a_completion_has_its_fields() -> None:
    for completion in COMPLETIONS:
        name = completion["problem_id"]
        blank = not completion["completion"].strip()

        assert set(completion) == COMPLETION_FIELDS, name
        assert completion["finish_reason"] in {"stop", "length"}, name
        assert isinstance(completion["output_tokens"], int), name
        assert completion["output_tokens"] > 0, name
        assert completion["gen_time"] > 0, name
        assert (completion["expected_status"] == "empty_output") == blank, name


def test_every_final_status_is_shown() -> None:
    assert {c["expected_status"] for c in COMPLETIONS} == COMMON | OTHER
    for name in SETS:
        shown = {c["expected_status"] for c in COMPLETIONS if c["dataset"] == name}
        assert shown >= COMMON, name


def test_endless_loops_are_few() -> None:
    assert 2 <= sum(c["expected_status"] == "timeout" for c in COMPLETIONS) <= 4


def test_contest_answers_are_fenced_but_for_one() -> None:
    contest = [c for c in COMPLETIONS if c["dataset"].startswith("codecontests")]
    bare = [c for c in contest if c["completion"].strip() and "```python\n" not in c["completion"]]

    # verl's rule finds no code without a fence, the default method does.
    assert [c["expected_status"] for c in bare] == ["success"]
