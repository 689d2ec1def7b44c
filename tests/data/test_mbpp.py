import json

import pytest

from services.data.importer import import_dataset
from shared.datasets import read_dataset
from shared.schemas import MbppTests
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


def test_fields(tmp_path):
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
    assert result.path == tmp_path / f"{name}.parquet"
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
        ({"text": None}, "text: Input should be a valid string"),
    ],
)
def test_a_bad_row_is_named(tmp_path, changes, cause):
    source = write_lines(tmp_path / "m.jsonl", [row(11), row(12) | changes])
    assert f"{source}:2: {cause}" in import_failure("mbpp", source, tmp_path)


def test_ids_that_select_nothing(tmp_path):
    source = write_lines(tmp_path / "m.jsonl", [row(11)])
    message = import_failure("mbpp", source, tmp_path, ids="975-2000")
    assert f"{source}: no task_id is in --ids 975-2000" in message
    assert "is no number or range" in import_failure("mbpp", source, tmp_path, ids="11-x")
    assert "--include-generated" in import_failure("mbpp", source, tmp_path, include_generated=True)


@pytest.mark.real_data
def test_the_real_file(real_data, tmp_path):
    source = str(real_data / "mbpp.jsonl")
    assert import_dataset("mbpp", source, tmp_path).problems == 974
    result = import_dataset("mbpp", source, tmp_path, ids="11-210")
    problems = read_dataset(str(result.path))
    assert (result.dataset, len(problems)) == ("mbpp_reg", 200)
    assert [one.problem_id for one in problems] == [f"mbpp_{n}" for n in range(11, 211)]
