"""HumanEval+ and MBPP+, with rows of our own in the published forms."""

import json
from collections import Counter

import pytest

from services.data.importer import import_dataset
from services.data.layouts import evalplus
from services.data.layouts.plus_check import is_right
from shared.datasets import read_dataset
from tests.data.support import import_failure, write_lines


def humaneval_row(**changes):
    return {
        "task_id": "HumanEval/0",
        "prompt": 'def halve(numbers):\n    """Halve every number."""\n',
        "contract": "\n    assert all(type(x) is int for x in numbers)\n",
        "canonical_solution": "    return [x / 2 for x in numbers]\n",
        "entry_point": "halve",
        "base_input": [[[1, 2]], [[]]],
        "plus_input": [[[3, 10**30]]],
        "atol": 1e-06,
        **changes,
    }


def mbpp_row(**changes):
    return {
        "task_id": "Mbpp/2",
        "prompt": '"""\nWrite a function to join two tuples.\n'
        'assert join((1,), (2,)) == (1, 2)\n"""\n',
        "entry_point": "join",
        "canonical_solution": "\ndef join(first, second):\n    return first + second\n",
        "base_input": [[[1], [2]]],
        "plus_input": [[[], [3, 4]]],
        "atol": 0,
        "contract": "",
        "assertion": "assert join((1,), (2,)) == (1, 2)",
        **changes,
    }


def imported(kind, tmp_path, row):
    result = import_dataset(kind, write_lines(tmp_path / "plus.jsonl", [row]), tmp_path)
    (problem,) = read_dataset(str(result.path))
    return problem


def passes(problem, answer):
    """Whether an answer passes the problem's tests, run here."""
    tests, scope = problem.tests, {}
    exec(answer, scope)
    try:
        if hasattr(tests, "test"):
            exec(f"{tests.test}\ncheck({tests.entry_point})", scope)
        else:
            for test in tests.test_list:
                exec(test, scope)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("return [x / 2 for x in numbers]", True),
        ("return [x / 2 + 1e-9 for x in numbers]", True),
        ("return [x // 2 for x in numbers]", False),
        ("return tuple(x / 2 for x in numbers)", False),
        ("return [x / 2 for x in numbers[:2]] + [0.0] * len(numbers[2:])", True),
        ("return [x / 2 + (x > 10**20) * 10**28 for x in numbers]", False),
        ("return None", False),
        ("numbers.clear(); return []", False),
    ],
)
def test_humaneval_plus(tmp_path, body, right):
    problem = imported("humaneval_plus", tmp_path, humaneval_row())
    assert (problem.dataset, problem.problem_id) == ("humaneval_plus", "HumanEval/0")
    assert (problem.data_source, problem.tests.entry_point) == ("humaneval", "halve")
    assert passes(problem, f"def halve(numbers):\n    {body}") is right


def hub_test(inputs):
    return (
        "def check(candidate):\n"
        f"    inputs = {[[[4]]] * inputs}\n"
        "    assert candidate(*inputs[0]) == [2]\n"
    )


HUB_TEST = hub_test(27)  # HumanEval has up to 26 inputs


def hub_row(test):
    row = humaneval_row(test=test)
    for name in ("base_input", "plus_input", "atol", "contract"):
        del row[name]
    return row


def drawn_row(test):
    return {**hub_row(test), "task_id": "HumanEval/53"}


def test_the_test_of_the_hub_is_taken_as_it_is(tmp_path):
    tests = imported("humaneval_plus", tmp_path, hub_row(HUB_TEST)).tests
    assert (tests.test, tests.limit_per_call) == (HUB_TEST, True)


def test_a_test_of_the_hub_with_its_arguments_mixed_up(tmp_path):
    test = f"inputs = {[[[1, 2]]] * 27}\nassert _poly(*candidate(*inp), inp) <= 0.0001"
    tests = imported("humaneval_plus", tmp_path, hub_row(test)).tests
    assert tests.test.endswith("assert abs(_poly(*inp, candidate(*inp))) <= 0.0001")


@pytest.mark.parametrize("test", ["def check(candidate):\n    assert True\n", HUB_TEST])
def test_plus_inputs_count_whatever_the_column_test_has(tmp_path, test):
    problem = imported("humaneval_plus", tmp_path, humaneval_row(test=test))
    assert problem.tests.limit_per_call
    assert passes(problem, "def halve(numbers): return [x / 2 for x in numbers]")
    assert not passes(problem, "def halve(numbers): return [0.5, 1.0] if numbers else []")


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("def join(first, second):\n    return first + second", True),
        ("def join(first, second):\n    return list(first) + list(second)", False),
        ("def join(first, second):\n    return first", False),
    ],
)
def test_mbpp_plus_gets_tuples(tmp_path, code, right):
    problem = imported("mbpp_plus", tmp_path, mbpp_row())
    assert (problem.dataset, problem.problem_id) == ("mbpp_plus", "mbpp_2")
    assert problem.prompt.startswith("Write a function to join two tuples.\nassert join")
    assert '"""' not in problem.prompt
    assert passes(problem, code) is right


def mbpp_hub_row(inputs):
    return {
        "task_id": 2,
        "code": "def join(a, b):\n    return a + b",
        "prompt": "Write a function to join two tuples.",
        "source_file": "x",
        "test_imports": ["import math"],
        "test_list": ["assert join((1,), (2,)) == (1, 2)"],
        "test": f"inputs = {inputs}\nfor inp in inputs:\n    assert join(*inp)[0] == 1\n",
    }


def test_mbpp_plus_of_the_hub(tmp_path):
    row = mbpp_hub_row([[(1,), (2,)], [(1,), ()]])
    problem = imported("mbpp_plus", tmp_path, row)
    assert problem.tests.test_list == [row["test"]]
    assert problem.tests.test_setup_code == "import math"
    assert problem.tests.limit_per_call
    assert problem.prompt.endswith(row["test_list"][0])


def test_no_task_has_two_forms():
    counts = Counter(number for _, numbers in evalplus._FORMS for number in numbers)
    assert set(counts.values()) == {1}
    assert len(counts) == 62


@pytest.mark.parametrize(
    ("number", "given", "expected"),
    [
        (2, [[1], [2]], [(1,), (2,)]),
        (63, [[[1], [2]]], [[(1,), (2,)]]),
        (75, [[[1], [2]], 3], [[(1,), (2,)], 3]),
        (106, [[1], [2]], [[1], (2,)]),
        (115, [[[1, 1], []]], [[{1}, {}]]),
        (124, ["1", "1j"], [1.0, 1j]),
        (250, [[1], 2], [(1,), 2]),
        (259, [[[1]], [[2]]], [((1,),), ((2,),)]),
        (278, [[[1], 2]], [((1,), 2)]),
        (722, [{"a": [1]}, 2], [{"a": (1,)}, 2]),
        (580, [[[1], 2]], (((1,), 2),)),
        (3, [[1]], [[1]]),
    ],
)
def test_arguments_get_the_types_that_json_lacks(number, given, expected):
    assert evalplus._as_python(number, given) == expected


@pytest.mark.parametrize(
    ("name", "given", "actual", "expected", "tolerance", "right"),
    [
        ("f", [1], 1.0000001, 1.0, 0, True),
        ("f", [1], 1.1, 1.0, 0, False),
        ("f", [1], 1, 2, 0, False),
        ("f", [1], float("nan"), 1.0, 1e-6, False),
        ("f", [1], float("inf"), 1.0, 1e-6, False),
        ("f", [1], (1.0,), [1.0], 1e-6, False),
        ("f", [1], [1.0], [1.0, 2.0], 1e-6, False),
        ("find_zero", [[-2.0, 1.0]], 2.0, 2.5, 1e-4, True),
        ("find_zero", [[-2.0, 1.0]], "two", 2.0, 1e-4, False),
        ("Diff", [[1], [2]], [2, 1], [1, 2], 0, True),
        ("Diff", [[1], [2]], 3, [1, 2], 0, False),
        ("check_str", ["a"], True, object(), 0, True),
        ("check_str", ["a"], object(), object(), 0, True),
        ("check_str", ["a"], None, object(), 0, False),
        ("sum_div", [7], 0, 1, 0, True),
        ("are_equivalent", [1, 2], "x", True, 0, True),
        ("digit_distance_nums", [1, 100], 2, 3, 0, True),
        ("surface_Area", [3, 4], 35, 33, 0, True),
    ],
)
def test_rules_of_evalplus(name, given, actual, expected, tolerance, right):
    assert is_right(name, given, actual, expected, tolerance) is right


@pytest.mark.parametrize(
    ("kind", "row", "words"),
    [
        ("humaneval_plus", humaneval_row(base_input=None), "neither base_input and plus_input"),
        ("humaneval_plus", humaneval_row(plus_input=None), "neither base_input and plus_input"),
        ("humaneval_plus", hub_row("def check(f): assert f([4]) == [2]"), "import it with that"),
        ("humaneval_plus", humaneval_row(plus_input={}), "no more than those of humaneval"),
        ("humaneval_plus", humaneval_row(plus_input=[[[1, 2]]]), "no more than those of humaneval"),
        ("humaneval_plus", hub_row(hub_test(26)), "no more than those of humaneval"),
        ("humaneval_plus", drawn_row(hub_test(105)), "no more than those of humaneval"),
        ("mbpp_plus", mbpp_row(plus_input=[]), "no more than those of mbpp"),
        ("mbpp_plus", mbpp_hub_row([[(1,), (2,)]]), "no more than those of mbpp"),
        ("humaneval_plus", humaneval_row(canonical_solution=None), "canonical_solution"),
        ("mbpp_plus", mbpp_row(task_id="HumanEval/1"), "has no number"),
        ("mbpp_plus", mbpp_row(entry_point=None), "no entry_point"),
        ("mbpp_plus", mbpp_row(base_input=[[1]]), "has another form"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path, kind, row, words):
    assert words in import_failure(kind, write_lines(tmp_path / "x.jsonl", [row]), tmp_path)


def test_infinite_inputs_can_be_written(tmp_path):
    row = humaneval_row(base_input=[[[float("inf")]]], plus_input=[[[float("-inf")]]])
    problem = imported("humaneval_plus", tmp_path, json.loads(json.dumps(row)))
    assert passes(problem, "def halve(numbers):\n    return numbers")
