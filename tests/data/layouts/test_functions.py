"""HumanEval and MBPP layouts."""

import gzip
import json

import pytest

from services.data.importer import import_dataset
from shared.datasets import canonicalize, read_dataset
from shared.schemas import HumanEvalTests, MbppTests, sha256
from tests.data.support import import_failure, write_lines


def row(task_id, **changes):
    return {
        "text": "Write a function to add one.",
        "code": "def add(x):\r\n\treturn x + 1",
        "task_id": task_id,
        "test_setup_code": "",
        "test_list": ["assert add(1) == 2", "assert add(2) == 3"],
        "challenge_test_list": [],
        **changes,
    }


def test_mbpp_fields(tmp_path):
    source = write_lines(tmp_path / "mbpp.jsonl", [row(12, test_setup_code="import math")])
    result = import_dataset("mbpp", source, tmp_path)
    (problem,) = read_dataset(str(tmp_path / "mbpp.parquet"))
    assert result.problems == 1
    assert (problem.dataset, problem.split, problem.data_source) == ("mbpp", "test", "mbpp")
    assert (problem.problem_id, problem.sandbox_dataset) == ("mbpp_12", "mbpp")
    assert (problem.sandbox_id, problem.difficulty) == ("12", "unknown")
    assert problem.tests == MbppTests(
        test_list=["assert add(1) == 2", "assert add(2) == 3"], test_setup_code="import math"
    )
    lines = problem.prompt.split("\n")
    assert lines[0] == "Write a function to add one."
    assert lines[-2:] == ["assert add(1) == 2", "assert add(2) == 3"]


@pytest.mark.parametrize(
    ("ids", "name", "numbers"),
    [
        (None, "mbpp", [1, 11, 210, 211]),
        ("11-210", "mbpp_reg", [11, 210]),
        ("11-211", "mbpp", [11, 210, 211]),
        ("1,211", "mbpp", [1, 211]),
    ],
)
def test_ids_select_and_name(tmp_path, ids, name, numbers):
    source = write_lines(tmp_path / "mbpp.jsonl", [row(n) for n in (1, 11, 210, 211)])
    result = import_dataset("mbpp", source, tmp_path, ids=ids)
    assert result.path == str(tmp_path / f"{name}.parquet")
    problems = read_dataset(str(result.path))
    assert [int(one.sandbox_id) for one in problems] == numbers
    assert {one.dataset for one in problems} == {name}


def test_a_given_name_wins(tmp_path):
    source = write_lines(tmp_path / "mbpp.jsonl", [row(11)])
    assert import_dataset("mbpp", source, tmp_path, ids="11-210", name="mine").dataset == "mine"


def test_splits_are_mbpps_own_unless_given(tmp_path):
    source = write_lines(tmp_path / "mbpp.jsonl", [row(n) for n in (1, 11, 511, 601)])
    import_dataset("mbpp", source, tmp_path)
    splits = [one.split for one in read_dataset(str(tmp_path / "mbpp.parquet"))]
    assert splits == ["prompt", "test", "validation", "train"]
    import_dataset("mbpp", source, tmp_path, split="dev")
    assert {one.split for one in read_dataset(str(tmp_path / "mbpp.parquet"))} == {"dev"}


@pytest.mark.parametrize("name", ["sanitized-mbpp.json", "sanitized-mbpp.jsonl"])
def test_the_sanitized_layout(tmp_path, name):
    sanitized = {
        "source_file": "x",
        "task_id": 11,
        "prompt": "Write.",
        "code": "",
        "test_imports": ["import math", "import re"],
        "test_list": ["assert f()"],
    }
    if name.endswith(".json"):
        (tmp_path / name).write_text(json.dumps([sanitized], indent=1))
    else:
        write_lines(tmp_path / name, [sanitized])
    import_dataset("mbpp", str(tmp_path / name), tmp_path)
    (problem,) = read_dataset(str(tmp_path / "mbpp.parquet"))
    assert problem.prompt.startswith("Write.\n")
    assert problem.tests.test_setup_code == "import math\nimport re"


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"{}", "not a JSON array"),
        (b"[1]", "entry 1: not a JSON object"),
        (b'[{"task_id": 1}]', "entry 1: text: Field required"),
        (b"[", "cannot be read (JSONDecodeError"),
        (b"\xff", "cannot be read (UnicodeDecodeError"),
    ],
)
def test_a_broken_array_is_named(tmp_path, content, cause):
    path = tmp_path / "m.json"
    path.write_bytes(content)
    message = import_failure("mbpp", str(path), tmp_path)
    assert message.startswith(f"{path}: ")
    assert cause in message


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"task_id": "12"}, "task_id: Input should be a valid integer"),
        ({"task_id": True}, "task_id: Input should be a valid integer"),
        ({"task_id": 2000}, "task_id 2000 is in none of MBPP's splits"),
        ({"test_list": []}, "problem 'mbpp_12' cannot be used: test_list: List should have"),
        ({"test_list": [1]}, "test_list.0: Input should be a valid string"),
        ({"text": None}, "text: Field required"),
    ],
)
def test_a_bad_row_is_named(tmp_path, changes, cause):
    source = write_lines(tmp_path / "m.jsonl", [row(11), row(12) | changes])
    assert f"{source}:2: {cause}" in import_failure("mbpp", source, tmp_path)


def test_ids_that_select_nothing(tmp_path):
    source = write_lines(tmp_path / "m.jsonl", [row(11)])
    message = import_failure("mbpp", source, tmp_path, ids="975-2000")
    assert f"{source}: no task_id is in --ids 975-2000" in message
    assert "is not a number or a range" in import_failure("mbpp", source, tmp_path, ids="11-x")
    assert "--include-generated" in import_failure("mbpp", source, tmp_path, include_generated=True)


@pytest.mark.real_data
def test_the_real_mbpp(real_data, tmp_path):
    source = str(real_data / "mbpp.jsonl")
    assert import_dataset("mbpp", source, tmp_path).problems == 974
    result = import_dataset("mbpp", source, tmp_path, ids="11-210")
    problems = read_dataset(str(result.path))
    assert (result.dataset, len(problems)) == ("mbpp_reg", 200)
    assert [one.problem_id for one in problems] == [f"mbpp_{n}" for n in range(11, 211)]


ROW = {
    "task_id": "HumanEval/0",
    "prompt": "def one():\n",
    "entry_point": "one",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}


def test_humaneval_fields(tmp_path):
    source = write_lines(tmp_path / "HumanEval.jsonl.gz", [ROW])
    result = import_dataset("humaneval", source, tmp_path / "out")
    assert result.path == str(tmp_path / "out" / "humaneval.parquet")
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


def test_an_unpaired_surrogate_is_named(tmp_path):
    source = write_lines(tmp_path / "h.jsonl", [ROW | {"prompt": "ab\ud800"}])
    message = import_failure("humaneval", source, tmp_path)
    assert (
        f"{source}:1: problem 'HumanEval/0' cannot be used: prompt has an unpaired surrogate"
        in message
    )


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
def test_the_real_humaneval(real_data, tmp_path):
    result = import_dataset("humaneval", str(real_data / "HumanEval.jsonl.gz"), tmp_path)
    problems = read_dataset(str(result.path))
    assert len(problems) == result.problems == 164
    assert {one.problem_id for one in problems} == {f"HumanEval/{n}" for n in range(164)}
    assert all(f"def {one.tests.entry_point}(" in one.prompt for one in problems)
