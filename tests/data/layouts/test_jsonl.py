import json

import pytest

from services.data.importer import import_dataset
from shared.datasets import canonicalize, read_dataset
from shared.schemas import sha256
from tests.data.support import import_failure, write_lines

TRUTH = {"inputs": ["1\n"], "outputs": ["2\n"]}


def row(problem_id="demo_1", **changes):
    return {
        "dataset": "demo",
        "split": "test",
        "problem_id": problem_id,
        "prompt": "Add öne.\r\n",
        "data_source": "demo",
        "ground_truth": TRUTH,
        "difficulty": "easy",
        "sandbox_dataset": "code_contests",
        "sandbox_id": problem_id,
        "reference_solution": "print(2)",
        **changes,
    }


def test_fields(tmp_path):
    rows = [row(), row("demo_2", ground_truth=json.dumps(TRUTH), prompt_sha256="stale")]
    result = import_dataset("jsonl", write_lines(tmp_path / "p.jsonl", rows), tmp_path)
    assert result.path == str(tmp_path / "demo.parquet")
    first, second = read_dataset(str(result.path))
    for field in set(row()) - {"reference_solution", "ground_truth"}:
        assert getattr(first, field) == row()[field]
    assert first.tests == second.tests
    assert first.prompt_sha256 == second.prompt_sha256 == sha256(canonicalize("Add öne.\n"))


def test_name_and_split_replace_what_the_rows_say_or_lack(tmp_path):
    rows = [row(), row("demo_2", dataset="other")]
    bare = row("demo_3")
    del bare["dataset"], bare["split"]
    source = write_lines(tmp_path / "p.jsonl", [*rows, bare])
    result = import_dataset("jsonl", source, tmp_path, name="mine", split="dev")
    problems = read_dataset(str(result.path))
    assert {(one.dataset, one.split) for one in problems} == {("mine", "dev")}
    assert len(problems) == 3


def test_two_data_sets_in_a_file_are_named(tmp_path):
    source = write_lines(tmp_path / "p.jsonl", [row(), row("x", dataset="other")])
    message = import_failure("jsonl", source, tmp_path)
    assert f"{source}:2: data set 'other', but earlier rows are of 'demo'" in message


@pytest.mark.parametrize("field", sorted(set(row()) - {"reference_solution"}))
def test_a_missing_field_is_named(tmp_path, field):
    broken = row("x")
    del broken[field]
    source = write_lines(tmp_path / "p.jsonl", [row(), broken])
    assert f"{source}:2: {field}: Field required" in import_failure("jsonl", source, tmp_path)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"ground_truth": {"inputs": ["1"], "outputs": []}}, "1 inputs but 0 outputs"),
        ({"ground_truth": {"inputs": [], "outputs": []}}, "inputs: List should have at least 1"),
        ({"ground_truth": "nonsense"}, "problem 'x' cannot be used: not JSON"),
        ({"ground_truth": {"test_list": ["a"], "a\nb": 1}}, "Extra inputs are not permitted"),
        ({"ground_truth": 3}, "ground_truth"),
        ({"problem_id": ""}, "problem '': problem_id: String should have at least 1"),
        ({"difficulty": 3}, "difficulty: Input should be a valid string"),
    ],
)
def test_a_bad_row_is_named(tmp_path, changes, cause):
    source = write_lines(tmp_path / "p.jsonl", [row(), row("x") | changes])
    message = import_failure("jsonl", source, tmp_path)
    assert message.startswith(f"{source}:2: ")
    assert cause in message
