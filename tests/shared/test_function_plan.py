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


NEED_THE_ANSWERS_PROCESS = """
import operator; assert f(operator.add, 1, 2) == 3
from math import sqrt; assert f(sqrt, 4) == 2
assert f(str.upper, 'a') == 'A'
assert f('a-'.join, ['b', 'c']) == 'ba-c'
ops = {'+': lambda a, b: a + b}; assert f(ops, '+', 1, 2) == 3
fs = [lambda x: x + 1]; assert f(fs, 3) == 8
def adder(n): return lambda x: x + n
log = []; f(log.append, 3)
assert f(**{'g': lambda x: x + 1, 'a': 2}) == 3
import functools; inc = functools.partial(pow, 2); assert f(inc, 3) == 8
g, h = (lambda x: x + 1), (lambda x: x * 2); assert f(g, 3) == 4
import re; pattern = re.compile('a+'); assert f(pattern, 'baa') == 'aa'
from pathlib import Path; assert f(Path('a/b.txt')) == 'b'
from collections import defaultdict; d = defaultdict(lambda: 5); assert f(d) == 5
run = f; assert run(lambda x: x + 1, 2) == 3
assert f(int.bit_length, 5) == 3
import threading; lock = threading.Lock(); assert f(lock)
p = f(1, 2); assert p.x == 1 and p.y == 2
c = f(); c.add(2); assert c.total == 2
assert isinstance(f(1), Point)
for s in [Stack()]: s.push(1)
cm = f(); __import__; assert cm
import inspect; assert len(inspect.signature(f).parameters) == 2
from inspect import isgeneratorfunction; assert isgeneratorfunction(f)
assert f.__name__ == 'f'
assert getattr(f, 'calls') == 1
g = f; assert g.__doc__
for one in (f, abs): assert one.__name__
import random; random.seed(1); assert f(100) == 17
import os; os.environ['HB'] = '3'; assert f() == '3'
from unittest.mock import patch; m = patch('builtins.input'); assert f() == 3
import builtins; builtins.input = lambda *a: '3'; assert f() == 3
import sys, io; sys.stdin = io.StringIO('3'); assert f() == 3
from decimal import Decimal, getcontext; getcontext().prec = 3; assert f() == Decimal('0.333')
open('a.txt', 'w').write('x'); assert f('a.txt') == 'x'
import logging; logging.getLogger().addHandler(f(1))
import math; math.pi = 3; assert f() == 3
import warnings; warnings.simplefilter('error'); assert f()
assert f() is f
""".strip().split("\n")
VALUES_ARE_ENOUGH = """
assert f(sorted([2, 1], key=operator.neg)) == 2
assert list(map(f, [1, 2])) == [1, 2] and max([1], key=f) == 1
import re; m = re.match('a+', f('aa')); assert m and m.group() == 'aa'
assert f([x for x in map(str.upper, 'ab')]) == ['A', 'B']
import numpy as np; assert f(np.zeros(3, dtype=np.int64)).dtype == np.int64
import numpy as np; assert np.allclose(f(1).mean(axis=0), np.array([1]) * np.pi)
import random; rng = random.Random(3); assert f([rng.randint(1, 3)]) <= 3
import string; assert f(string.ascii_lowercase) == 26
from math import inf, isclose; assert isclose(f(inf), 1)
from datetime import datetime; assert f(datetime(2020, 1, 2)).day == 2
from collections import Counter, deque; assert f(deque([1])) == Counter([1])
import copy; xs = [1]; ys = copy.deepcopy(xs); f(xs); assert xs != ys
def close(a, b): return abs(a - b) < 1e-9; assert close(f(1), 2)
def run(g, x): return g(x); assert run(f, 1) == 2
for g in [f]: assert g(1) == 2
assert isinstance(f(1), (int, float)) and type(f(1)) is int
assert f('a b').split()[0].upper() == 'A'
import sys; assert f(sys.maxsize) == 1
import os.path; assert f(os.path.join('a', 'b')) == 1
import functools; assert functools.reduce(lambda a, b: a + b, f([1])) == 1
compare = lambda a, b: a == b; assert compare(f(1), 2)
up = lambda string: string.upper(); assert up(f('a')) == 'A'
assert sum(range(4)) == 6
assert queue(stack(3)) == 3
""".strip().split("\n")


def test_whether_values_are_enough() -> None:
    wrong = [test for test in NEED_THE_ANSWERS_PROCESS if plan_of(mbpp(test)).shared is None]
    wrong += [test for test in VALUES_ARE_ENOUGH if plan_of(mbpp(test)).shared is not None]
    assert not wrong


@pytest.mark.parametrize(
    "setup",
    [
        "from enum import Flag\nclass P(Flag):\n    A = 1",
        "class P(int):\n    pass",
        "class P(tuple):\n    pass",
        "class P(dict):\n    pass",
        "class P:\n    __slots__ = 'value'",
        "class P:\n    __slots__ = ('__value',)",
        "class P:\n    class Q:\n        pass",
        "try:\n    class P:\n        pass\nexcept Exception:\n    pass",
        "class P:\n    count = 0\n    def __init__(self):\n        P.count += 1",
        "calls = 0\ndef inc(x):\n    global calls\n    calls += 1",
        "class P(metaclass=M):\n    pass",
    ],
)
def test_setups_whose_objects_are_more_than_fields(setup: str) -> None:
    assert plan_of(mbpp("assert f(1) == 2", setup=setup)).shared


@pytest.mark.parametrize(
    ("test", "undefined"),
    [
        ("assert f(CASES[0]) == 1", "CASES"),
        ("assert f(N) == 1", "N"),
        ("assert f() == 2 * limit", "limit"),
        ("for x in cases:\n    assert f(x) == 1", "cases"),
        ("assert f(*given) == 1", "given"),
        ("exec('N = 1')\nassert f(N) == 1", None),
        ("from math import *\nassert f(pi) == PI", None),
        ("def t():\n    global N\n    N = 3\nt()\nassert f(N) == 1", None),
        ("assert f(g) == 1", None),
        ("assert f(g(1)) == 1", None),
    ],
)
def test_data_that_nobody_defines(test: str, undefined: str | None) -> None:
    fault = plan_of(mbpp(test)).fault
    assert fault == (f"undefined names: {undefined}" if undefined else None)


def test_a_name_that_a_humaneval_test_may_define() -> None:
    def fault(test: str) -> str | None:
        return plan_of(HumanEvalTests(test=test, entry_point="f", prompt="def f(x):\n")).fault

    body = "def check(candidate):\n    assert candidate(1) == one\n"
    assert fault(body) == "undefined names: one"
    assert fault(f"from numbers import *\n{body}") is None
    assert fault(f"exec('one = 1')\n{body}") is None


def test_imports_by_a_call_are_tried() -> None:
    test = "import importlib\nm = importlib.import_module('no.such')\nassert f() == 1"
    assert "import no.such" in plan_of(mbpp(test)).imports
