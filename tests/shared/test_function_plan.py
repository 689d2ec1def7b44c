"""Plans of function tests: names that the tests call, and what needs the answer's process."""

import pytest

from shared.function_plan import plan_of
from shared.schemas import HumanEvalTests, MbppTests


def mbpp(*tests: str, setup: str = "") -> MbppTests:
    return MbppTests(test_list=list(tests), test_setup_code=setup)


@pytest.mark.parametrize(
    ("tests", "names", "modules"),
    [
        (["assert f(1) == 2"], ["f"], []),
        (["assert set(f([1])) == set([2])"], ["f"], []),
        (["assert sum(10, 15) == 25"], ["sum"], []),
        (["assert sorted(max([1])) == [1]"], ["max"], []),
        (["assert f(1) == g(2)"], ["f", "g"], []),
        (["assert f((1,)) == sys.getsizeof((1,))"], ["f"], ["sys"]),
        (["x = 3", "assert f(x) == [y for y in range(x)]"], ["f"], []),
        (["import math", "assert math.isclose(f(1), 2)"], ["f"], []),
        (["assert f(("], [], []),
    ],
)
def test_names(tests: list[str], names: list[str], modules: list[str]) -> None:
    plan = plan_of(mbpp(*tests))
    assert (plan.tests.names, plan.tests.modules, plan.shared) == (names, modules, None)


def test_a_setup_is_on_both_sides() -> None:
    setup = "import math\nfrom re import sub\nexpected = [4]\ndef right(x):\n    return 2 * x\n"
    tests = plan_of(mbpp("assert f(2) == right(2)", setup=setup)).tests
    assert (tests.prelude, tests.setup, tests.names) == (setup, setup, ["f"])


def test_a_prompts_helpers_are_on_both_sides() -> None:
    prompt = "import math\n\ndef helper(x):\n    return x\n\n\ndef f(x):\n    '''Doc.'''\n"
    test = "def check(candidate):\n    assert candidate(helper(1)) == 1\n"
    tests = plan_of(HumanEvalTests(test=test, entry_point="f", prompt=prompt)).tests
    assert tests.prelude == tests.setup == prompt[: prompt.index("def f(")]
    assert tests.names == ["f"]
    assert tests.tests == [f"{test}\ncheck(f)\n"]


def test_random_inputs_are_the_same_each_time() -> None:
    test = "import random\ndef check(candidate):\n    assert candidate(random.random())\n"
    tests = plan_of(HumanEvalTests(test=test, entry_point="f", prompt="def f(x):\n")).tests
    assert tests.tests[0].startswith("import random; random.seed(0)\n")


@pytest.mark.parametrize(
    "tests",
    [
        mbpp("assert f(root) == 1", setup="root = Node(1)"),
        mbpp("assert f([Pair(1, 2)], 2) == 3"),
        mbpp("assert f(lambda x: x) == 3"),
        mbpp("assert f(double, [1]) == [2]", setup="def double(x): return 2 * x"),
        mbpp("s = Stack()", "s.push(1)", "assert s.pop() == 1"),
        mbpp("assert Stack().size() == 0"),
        HumanEvalTests(test="check = print", entry_point="Stack", prompt="class Stack:\n"),
    ],
)
def test_what_cannot_cross_is_found_beforehand(tests: HumanEvalTests | MbppTests) -> None:
    assert plan_of(tests).shared


@pytest.mark.parametrize(
    "test",
    [
        "assert f(sorted([2, 1], key=lambda x: -x)) == 2",
        "def key(x): return -x\nassert f(sorted([2, 1], key=key)) == 2",
        "assert Sort([2, 1]) == [1, 2]",
        "assert f((1, 2.0), int) == [2.0]",
        "assert sorted(f([2]), key=lambda x: x) == [2]",
    ],
)
def test_what_can_cross(test: str) -> None:
    assert plan_of(mbpp(test)).shared is None


@pytest.mark.parametrize(
    ("tests", "fault"),
    [
        (["assert f() == EXPECTED"], "undefined names: EXPECTED"),
        (["assert f() == 2 * limit"], "undefined names: limit"),
        (["for one in [f, g]:\n    assert one(1) == 1"], None),
        (["assert sorted([1], key=f) == [1]"], None),
        (["assert f", "assert f(1) == f(1)"], None),
        (["EXPECTED = 3", "assert f() == EXPECTED"], None),
    ],
)
def test_names_that_nobody_defines(tests: list[str], fault: str | None) -> None:
    assert plan_of(mbpp(*tests)).fault == fault
