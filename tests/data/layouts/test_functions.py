"""HumanEval and MBPP, and EvalPlus' editions of them."""

import json

from shared.datasets import canonicalize, read_dataset
from shared.schemas import HumanEvalTests, MbppTests, sha256
from tests.data.layouts.rows import PLUS_TEST, humaneval, humaneval_plus, mbpp, mbpp_plus
from tests.data.support import import_failure, import_rows, imported, write_lines


def test_humaneval_fields(tmp_path):
    row = humaneval()
    source = write_lines(tmp_path / "HumanEval.jsonl.gz", [row])
    result = import_rows("humaneval", source, tmp_path / "out")
    assert result.path == str(tmp_path / "out" / "humaneval.parquet")
    assert (result.dataset, result.problems, result.dropped) == ("humaneval", 1, ())
    (problem,) = read_dataset(str(result.path))
    assert problem.model_dump(exclude={"ground_truth"}) == {
        "dataset": "humaneval",
        "split": "test",
        "problem_id": "HumanEval/0",
        "prompt": row["prompt"],
        "data_source": "humaneval",
        "difficulty": "unknown",
        "sandbox_dataset": "humaneval_python",
        "sandbox_id": "HumanEval/0",
        "prompt_sha256": sha256(canonicalize(row["prompt"])),
        "quality": "",
        "extra_info": "",
    }
    assert problem.tests == HumanEvalTests(
        test=row["test"], entry_point="one", prompt=row["prompt"]
    )


def test_mbpp_fields(tmp_path):
    (problem,) = imported("mbpp", tmp_path, mbpp(12, test_setup_code="import math"))
    assert (problem.dataset, problem.split, problem.data_source) == ("mbpp", "test", "mbpp")
    assert (problem.problem_id, problem.sandbox_dataset) == ("mbpp_12", "mbpp")
    assert (problem.sandbox_id, problem.difficulty) == ("12", "unknown")
    assert problem.tests == MbppTests(
        test_list=["assert add(1) == 2", "assert add(2) == 3"], test_setup_code="import math"
    )
    lines = problem.prompt.split("\n")
    assert lines[0] == "Write a function to add one."
    assert lines[-2:] == ["assert add(1) == 2", "assert add(2) == 3"]


def test_ids_select_and_name(tmp_path):
    rows = [mbpp(n) for n in (1, 11, 210, 211)]
    for ids, name, numbers in (
        (None, "mbpp", [1, 11, 210, 211]),
        ("11-210", "mbpp_reg", [11, 210]),
        ("11-211", "mbpp", [11, 210, 211]),
        ("211", "mbpp", [211]),
    ):
        problems = imported("mbpp", tmp_path, *rows, ids=ids)
        assert [int(one.sandbox_id) for one in problems] == numbers
        assert {one.dataset for one in problems} == {name}
    (problem, _) = imported("mbpp", tmp_path, *rows, ids="11-210", name="mine")
    assert problem.dataset == "mine"
    source = write_lines(tmp_path / "m.jsonl", rows)
    message = import_failure("mbpp", source, tmp_path, ids="975-2000")
    assert f"{source}: no problem is in --ids 975-2000" in message
    assert "is not a number or a range" in import_failure("mbpp", source, tmp_path, ids="11-x")


def test_the_sanitized_layout(tmp_path):
    sanitized = {
        "task_id": 11,
        "prompt": "Write.",
        "code": "",
        "test_imports": ["import math", "import re"],
        "test_list": ["assert f()"],
    }
    (tmp_path / "sanitized-mbpp.json").write_text(json.dumps([sanitized], indent=1))
    import_rows("mbpp", str(tmp_path / "sanitized-mbpp.json"), tmp_path)
    (problem,) = read_dataset(str(tmp_path / "mbpp.parquet"))
    assert problem.prompt.startswith("Write.\n")
    assert problem.tests.test_setup_code == "import math\nimport re"


def test_evalplus(tmp_path):
    (problem,) = imported("humaneval_plus", tmp_path, humaneval_plus())
    assert (problem.dataset, problem.data_source) == ("humaneval_plus", "humaneval")
    assert (problem.tests.test, problem.tests.limit_per_call) == (PLUS_TEST, True)
    (problem,) = imported("mbpp_plus", tmp_path, mbpp_plus(7, test_imports=["import re"]))
    assert (problem.dataset, problem.problem_id, problem.split) == ("mbpp_plus", "mbpp_7", "test")
    assert problem.tests.test_list == [PLUS_TEST]
    assert (problem.tests.test_setup_code, problem.tests.limit_per_call) == ("import re", True)
    assert problem.prompt.endswith("\nassert add(2) == 3")


def test_the_mixed_up_test_of_humaneval_32_is_corrected(tmp_path):
    row = humaneval_plus()
    row["test"] += "    assert _poly(*candidate(*inp), inp) <= 0.0001\n"
    (problem,) = imported("humaneval_plus", tmp_path, row)
    assert "abs(_poly(*inp, candidate(*inp))) <= 0.0001" in problem.tests.test


def test_base_sets_are_no_plus_sets(tmp_path):
    row = {name: value for name, value in humaneval_plus().items() if name != "test"}
    for kind, one, cause in (
        ("humaneval_plus", humaneval(), "its test has no further inputs"),
        ("humaneval_plus", {**row, "base_input": [[1]]}, "test: Field required"),
        ("mbpp_plus", mbpp_plus() | {"test": "assert f(1) == 2"}, "evalplus/mbppplus"),
    ):
        source = write_lines(tmp_path / "p.jsonl", [one])
        message = import_failure(kind, source, tmp_path)
        assert message.startswith(f"{source}:1: ")
        assert cause in message
