import gzip

import pytest

from services.data.importer import import_dataset
from shared.canonical import canonicalize
from shared.datasets import read_dataset
from shared.schemas import HumanEvalTests, sha256
from tests.data.support import import_failure, write_lines

ROW = {
    "task_id": "HumanEval/0",
    "prompt": "def one():\n",
    "entry_point": "one",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}


def test_fields(tmp_path):
    source = write_lines(tmp_path / "HumanEval.jsonl.gz", [ROW])
    result = import_dataset("humaneval", source, tmp_path / "out")
    assert result.path == tmp_path / "out" / "humaneval.parquet"
    assert (result.dataset, result.problems, result.dropped) == ("humaneval", 1, ())
    (problem,) = read_dataset(str(result.path))
    assert problem.model_dump(exclude={"ground_truth"}) == {
        "dataset": "humaneval",
        "split": "test",
        "problem_id": "HumanEval/0",
        "prompt": ROW["prompt"],
        "data_source": "humaneval",
        "difficulty": "unknown",
        "sandbox_dataset": "humaneval_python",
        "sandbox_id": "HumanEval/0",
        "prompt_sha256": sha256(canonicalize(ROW["prompt"])),
        "quality": "",
        "extra_info": "",
    }
    assert problem.tests == HumanEvalTests(
        test=ROW["test"], entry_point="one", prompt=ROW["prompt"]
    )


def test_name_and_split_can_be_given(tmp_path):
    source = write_lines(tmp_path / "h.jsonl", [ROW])
    result = import_dataset("humaneval", source, tmp_path, name="he", split="dev")
    (problem,) = read_dataset(str(tmp_path / "he.parquet"))
    assert (result.dataset, problem.dataset, problem.split) == ("he", "he", "dev")


@pytest.mark.parametrize("field", ["task_id", "prompt", "entry_point", "test"])
def test_a_missing_field_is_named(tmp_path, field):
    broken = {key: value for key, value in ROW.items() if key != field}
    source = write_lines(tmp_path / "h.jsonl", [ROW, broken])
    assert f"{source}:2: {field}: Field required" in import_failure("humaneval", source, tmp_path)


def test_a_test_that_is_empty_is_named(tmp_path):
    source = write_lines(tmp_path / "h.jsonl", [ROW | {"test": ""}])
    message = import_failure("humaneval", source, tmp_path)
    assert f"{source}:1: problem 'HumanEval/0' cannot be used: test: String" in message


def test_half_a_surrogate_pair_is_named(tmp_path):
    source = write_lines(tmp_path / "h.jsonl", [ROW | {"prompt": "ab\ud800"}])
    message = import_failure("humaneval", source, tmp_path)
    assert f"{source}:1: problem 'HumanEval/0' cannot be used: prompt has half a" in message


def test_truncated_gzip_is_named(tmp_path):
    (tmp_path / "h.jsonl.gz").write_bytes(gzip.compress(b"{}\n" * 1000)[:-9])
    message = import_failure("humaneval", str(tmp_path / "h.jsonl.gz"), tmp_path)
    assert str(tmp_path / "h.jsonl.gz:") in message


def test_options_of_other_layouts_are_refused(tmp_path):
    source = write_lines(tmp_path / "h.jsonl", [ROW])
    assert "--ids" in import_failure("humaneval", source, tmp_path, ids="1-3")
    message = import_failure("humaneval", source, tmp_path, include_generated=True)
    assert "--include-generated" in message


@pytest.mark.real_data
def test_the_real_file(real_data, tmp_path):
    result = import_dataset("humaneval", str(real_data / "HumanEval.jsonl.gz"), tmp_path)
    problems = read_dataset(str(result.path))
    assert len(problems) == result.problems == 164
    assert {one.problem_id for one in problems} == {f"HumanEval/{n}" for n in range(164)}
    assert all(f"def {one.tests.entry_point}(" in one.prompt for one in problems)
