"""CodeContests+ layout: checkers, test cases, limits and submissions."""

import pytest

from services.data.importer import import_dataset
from services.data.layouts import LAYOUTS
from services.data.layouts.base import Dropped, Options, Solution
from shared.datasets import read_dataset
from shared.errors import DataError
from shared.schemas import StdioTests
from tests.data.support import import_failure, write_lines

CHECKER = '#include "testlib.h"\nint main(int argc, char* argv[]) { quitf(_ok, "fine"); }\n'


def row(name="1_A", **changes):
    return {
        "source": "Codeforces",
        "id": name,
        "title": "One",
        "description": "Print any number.",
        "time_limit": 2000,
        "memory_limit": 256,
        "validator": "int main() {}",
        "generator": "int main() {}",
        "generator_cmd": "./gen 1",
        "checker": CHECKER,
        "test_cases": [{"input": "1\n", "output": "2\n"}, {"input": "3\n", "output": "4\n"}],
        "true_positive_rate": 1.0,
        "true_negative_rate": 0.9,
        **changes,
    }


def read(fields, **options):
    (found,) = LAYOUTS["code_contests_plus"].read(iter([("here", fields)]), Options(**options))
    return found


def test_fields(tmp_path):
    source = write_lines(tmp_path / "plus.jsonl", [row()])
    result = import_dataset("code_contests_plus", source, tmp_path)
    (problem,) = read_dataset(str(result.path))
    assert (problem.dataset, problem.split) == ("codecontests_plus", "train")
    assert problem.problem_id == problem.sandbox_id == "1_A. One"
    assert problem.tests == StdioTests(
        inputs=["1\n", "3\n"],
        outputs=["2\n", "4\n"],
        checker_source=CHECKER,
        checker_language="cpp",
    )
    info = problem.info
    assert (info.time_limit, info.memory_limit, info.generated_tests) == (2.0, 256 << 20, 2)


@pytest.mark.parametrize("checker", [None, "", " \n"])
def test_a_problem_without_a_checker(checker):
    tests = read(row(checker=checker)).problem.tests
    assert (tests.checker_source, tests.checker_language) == (None, "python")


@pytest.mark.parametrize(
    ("time", "memory", "seconds", "size"),
    [
        (1500, 64, 1.5, 64 << 20),
        (2, 268435456, 2, 268435456),
        (0.5, 0.5, 0.5, 1 << 19),
        (0, 0, None, None),
        (None, None, None, None),
    ],
)
def test_limits(time, memory, seconds, size):
    info = read(row(time_limit=time, memory_limit=memory)).problem.info
    assert (info.time_limit, info.memory_limit) == (seconds, size)


@pytest.mark.parametrize("cases", [None, []])
def test_the_configuration_without_test_cases(cases):
    found = read(row(test_cases=cases))
    assert isinstance(found, Dropped)
    assert "no test cases; the configurations 1x to 5x have them" in found.reason


def test_python_submissions_are_preferred():
    languages = ["java", "cpp", "py2", "py3", "CPP", "python3"]
    submissions = [{"language": one, "code": f"code {one}"} for one in languages]
    found = read(row(correct_submissions=submissions), solutions=4)
    assert found.solutions == (
        Solution("python", "code py3"),
        Solution("python", "code python3"),
        Solution("cpp", "code cpp"),
        Solution("cpp", "code CPP"),
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": 3}, "id: "),
        ({"description": None}, "description: "),
        ({"test_cases": "gASV"}, "test_cases: "),
        ({"test_cases": [{"input": "1"}]}, "output"),
        ({"checker": 7}, "checker: "),
        ({"checker": "void check();"}, "checker_source must have a main function"),
        ({"time_limit": -1}, "time_limit: "),
        ({"id": " ", "title": ""}, "name is empty"),
    ],
)
def test_a_row_that_cannot_be_read(tmp_path, changes, said):
    source = write_lines(tmp_path / "plus.jsonl", [row(**changes)])
    assert said in import_failure("code_contests_plus", source, tmp_path)


@pytest.mark.parametrize("options", [{"ids": "1"}, {"include_generated": True}])
def test_options_of_other_layouts_are_refused(tmp_path, options):
    source = write_lines(tmp_path / "plus.jsonl", [row()])
    with pytest.raises(DataError, match=r"CodeContests\+"):
        import_dataset("code_contests_plus", source, tmp_path, **options)
