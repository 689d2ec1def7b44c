"""MultiPL-E's layout, with rows of our own in the published form."""

import pytest

from services.data.importer import import_dataset
from shared.datasets import read_dataset
from tests.data.support import import_failure, write_lines


def row(**changes):
    return {
        "name": "HumanEval_900_add",
        "language": "cpp",
        "prompt": "#include<assert.h>\n#include<bits/stdc++.h>\n// Add.\n"
        "long add(long a, long b) {\n",
        "doctests": "transform",
        "original": "x.py",
        "prompt_terminology": "reworded",
        "tests": "}\nint main() {\n    auto candidate = add;\n"
        "    assert(candidate((1), (2)) == (3));\n}\n",
        "stop_tokens": ["\n}"],
        **changes,
    }


@pytest.mark.parametrize(
    ("language", "name", "known"),
    [
        ("cpp", "humaneval_cpp", "cpp"),
        ("js", "humaneval_js", "nodejs"),
        ("java", "humaneval_java", "java"),
        ("rs", "humaneval_rs", "rust"),
        ("go", "humaneval_go", "go_test"),
        ("go_test.go", "humaneval_go", "go_test"),
    ],
)
def test_fields(tmp_path, language, name, known):
    source = write_lines(tmp_path / "x.jsonl", [row(language=language)])
    result = import_dataset("multipl_e", source, tmp_path)
    (problem,) = read_dataset(str(result.path))
    assert (problem.dataset, problem.problem_id) == (name, "HumanEval_900_add")
    tests = problem.tests
    assert (tests.language, tests.entry_point, tests.cases) == (known, "add", 1)
    assert tests.program_tests.startswith("}\nint main()")
    assert tests.stop_tokens == ["\n}"]
    assert problem.prompt == tests.prompt == row()["prompt"]


def test_mbpp_has_a_name_of_its_own(tmp_path):
    source = write_lines(tmp_path / "x.jsonl", [row(name="mbpp_3_add", language="js")])
    assert import_dataset("multipl_e", source, tmp_path).dataset == "mbpp_js"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(language="cobol")], "language 'cobol' cannot be judged; choose a set in one of cpp"),
        ([row(), row(name="b", language="js")], "but earlier rows are in 'cpp'; split the file"),
        ([row(tests="")], "program_tests"),
        ([row(prompt=None)], "prompt"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path, rows, words):
    assert words in import_failure("multipl_e", write_lines(tmp_path / "x.jsonl", rows), tmp_path)
