"""Tests and answers in two processes: what exists on both sides, and what decides nothing."""

from collections.abc import Sequence

import pytest

from services.judge.sandbox import SandboxClient
from shared.schemas import Verdict
from shared.statuses import FinalStatus, VerdictDetail
from tests.judge.tasks import together
from tests.judge.test_function_tests import judged

RIGHT, WRONG, ERROR = FinalStatus.SUCCESS, FinalStatus.WRONG_ANSWER, FinalStatus.RUNTIME_ERROR
UNJUDGED = FinalStatus.API_ERROR
POINT = "from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int\n    y: int = 0\n"
NODE = (
    "class Node:\n    def __init__(self, value, next=None):\n        self.value = value\n"
    "        self.next = next\n"
)
PAIR = "from collections import namedtuple\nPair = namedtuple('Pair', 'a b')\n"
COLOR = "from enum import Enum\nclass Color(Enum):\n    RED = 1\n    BLUE = 2\n"
OOPS = "class Oops(ValueError):\n    pass\n"
# Setup, answer, test, verdict, whether in one process.
Row = tuple[str, str, str, FinalStatus, bool]
BOTH_SIDES: list[Row] = [
    ("N = 5", "def f(x): return x + N", "assert f(1) == 6", RIGHT, False),
    (POINT, "def f(p): return Point(p.y, p.x)", "assert f(Point(1, 2)) == Point(2, 1)", RIGHT,
     False),
    (POINT, "def f(p): return Point(p.x, p.y)", "assert f(Point(1, 2)) == Point(2, 1)", WRONG,
     False),
    (POINT, f"{POINT}def f(p): return Point(p.y, p.x)", "assert f(Point(1, 2)) == Point(2, 1)",
     RIGHT, False),
    (POINT, "class Point:\n    def __eq__(self, _): return True\ndef f(p): return Point()",
     "assert f(Point(1, 2)) == Point(2, 1)", ERROR, False),
    (POINT, "def f(p):\n    p.x = 7", "p = Point(1)\nf(p)\nassert p == Point(7)", RIGHT, False),
    (NODE, "def f(n):\n    s = 0\n    while n: s, n = s + n.value, n.next\n    return s",
     "assert f(Node(1, Node(2))) == 3", RIGHT, False),
    (NODE, "def f(n):\n    last = None\n    while n: n.next, last, n = last, n, n.next\n"
     "    return last", "r = f(Node(1, Node(2)))\nassert (r.value, r.next.value) == (2, 1)", RIGHT,
     False),
    (PAIR, "def f(p): return Pair(p.b, p.a)", "assert f(Pair(1, 2)) == Pair(2, 1)", RIGHT, False),
    (COLOR, "def f(c): return Color.RED if c is Color.BLUE else Color.BLUE",
     "assert f(Color.BLUE) is Color.RED", RIGHT, False),
    (OOPS, "def f(x): raise Oops(x)", "try: f(3)\nexcept Oops as e: assert e.args == (3,)\n"
     "else: assert False", RIGHT, False),
    (OOPS, "def f(x): raise ValueError(x)", "try: f(3)\nexcept Oops: pass", ERROR, False),
    ("", "class Mine(KeyError): pass\ndef f(x): raise Mine(x)", "try: f(3)\nexcept KeyError: pass",
     RIGHT, False),
    ("", "def f(e): return type(e).__name__", "assert f(ValueError(1)) == 'ValueError'", RIGHT,
     False),
    ("", "import array\ndef f(a):\n    a[0] = 5",
     "import array\na = array.array('i', [1, 2])\nf(a)\nassert a[0] == 5", RIGHT, False),
    ("", "def f(n):\n    r = []\n    for _ in range(n): r = [r]\n    return r",
     "r = f(900)\nd = 0\nwhile r: r, d = r[0], d + 1\nassert d == 900", RIGHT, False),
]  # fmt: skip
ONE_PROCESS: list[Row] = [
    ("", "def f():\n    'Doc.'", "assert f.__doc__ == 'Doc.'", RIGHT, True),
    ("", "def f(a, b=1): pass", "import inspect\nassert len(inspect.signature(f).parameters) == 2",
     RIGHT, True),
    ("", "def f(): print('hi')", "import io, contextlib\nout = io.StringIO()\n"
     "with contextlib.redirect_stdout(out): f()\nassert out.getvalue() == 'hi\\n'", RIGHT, True),
    ("", "def f():\n    x = yield 1\n    yield x", "g = f()\nnext(g)\nassert g.send(5) == 5", RIGHT,
     True),
    ("", "import contextlib\n@contextlib.contextmanager\ndef f():\n    yield 3",
     "with f() as x:\n    assert x == 3", RIGHT, True),
    ("", "def f(): return 1\nf.calls = 2", "assert f.calls == 2", RIGHT, True),
    ("", "def f(g): return g(3)", "double = lambda x: 2 * x\nassert f(double) == 6", RIGHT, True),
    ("", "def f(x): return x", "class A: pass\nassert f(A())", RIGHT, True),
]  # fmt: skip
DECIDES_NOTHING: list[Row] = [
    ("", "def f(x): raise StopIteration", "assert list(map(f, [1, 2])) == []", ERROR, False),
    ("", "def f(x): raise StopIteration(x)",
     "try: f(1)\nexcept StopIteration as e: assert e.value == 1", RIGHT, False),
    ("", "def f():\n    yield 1", "assert next(f()) == 1 and list(map(str, f())) == ['1']", RIGHT,
     False),
    ("", "class L:\n    def __eq__(self, _): return True\n    def __deepcopy__(self, _): 1 / 0\n"
     "def f(x): return L()", "import copy\nassert copy.deepcopy(f(1)) == 3", WRONG, False),
    ("", "import threading\ndef f(x): return threading.Lock() if x is 1 else 2",
     "assert f([f(1)]) == 2", RIGHT, False),
    ("", "def f(x): return 2", "import types\nassert f(types.SimpleNamespace(a=1)) == 2", RIGHT,
     True),
]  # fmt: skip
UNUSABLE: list[Row] = [
    ("import a_module_that_is_missing", "def f(): return 1", "assert f() == 1", UNJUDGED, False),
    ("", "def f(): return 1", "import a_module_that_is_missing\nassert f() == 1", UNJUDGED, False),
    ("", "def f(): return 1", "def t():\n    from no_such import a\nassert f() == 1", UNJUDGED,
     False),
    ("", "def f(): return 1", "assert f( == 1", UNJUDGED, False),
    ("", "def f(): return 1", "assert f() == EXPECTED", UNJUDGED, False),
    ("", "def f(): return 1", "try: import no_such\nexcept ImportError: no_such = 0\n"
     "assert f() == 1", RIGHT, False),
    # None of these is the test's fault.
    ("", "import a_module_that_is_missing\ndef f(): return 1", "assert f() == 1", ERROR, False),
    ("", "def f(): return 1\ndel f", "assert f() == 1", ERROR, False),
    ("", "raise SyntaxError('test', ('<test>', 1, 1, 'x'))", "assert f() == 1", ERROR, False),
    ("import math", "import sys\nsys.modules['math'] = None\nmath = None\ndef f(): return 1",
     "import math\nassert f() == math.floor(1.5)", RIGHT, False),
    ("", "import sys\nsys.path.clear()\nsys.meta_path.clear()\ndef f(): return 1",
     "import fractions\nassert f() == 1", RIGHT, False),
]  # fmt: skip


VEC = (
    "class Vec:\n    EPS = 0.01\n    def __init__(self, x): self.x = x\n"
    "    def __eq__(self, o): return self.same(o)\n"
    "    def same(self, o): return abs(self.x - o.x) < self.EPS\n"
)
FORGED = (
    "import os, struct\ndef f(x):\n"
    "    os.write(4, struct.pack('<Q', 13) + b'S=[[null],[]]')\n    return 0"
)
STEERED: list[Row] = [
    *(
        ("", FORGED, test, ERROR, False)
        for test in (
            "assert all(a == b for a, b in zip(map(f, [1, 2]), [2, 3]))",
            "assert sum(map(f, [1, 2])) == 0",
            "assert not any(filter(f, [1, 2]))",
        )
    ),
    ("", "def f(x): return iter(())", "assert all(map(lambda x: next(f(x)) == x, [1]))", ERROR,
     False),
    ("", "def f(x): return iter([x])", "assert all(map(lambda x: next(f(x)) == x, [1]))", RIGHT,
     False),
    ("", "def f(x): return iter(())", "assert next(f(1), None) is None", RIGHT, False),
    ("", "def f(x): return iter(())", "try:\n    next(f(1))\n    assert False\n"
     "except StopIteration: pass", RIGHT, False),
    (VEC, "def f(x):\n    r = Vec(0)\n    r.same = lambda o: True\n    return r",
     "assert f(1) == Vec(1)", ERROR, False),
    (VEC, "def f(x):\n    r = Vec(x)\n    r.note = 'own'\n    return r", "assert f(1) == Vec(1)",
     RIGHT, False),
    ("class N:\n    left = right = None\n    v = 0", "def f():\n    n = N()\n    n.left = N()\n"
     "    n.left.v = 3\n    return n", "assert f().left.v == 3", RIGHT, False),
    # An answer that reads standard input where it is loaded.
    ("", "t = int(input())\nf = lambda x: x + 1\nfor _ in range(t): print(f(t))",
     "assert f(8) == 9", RIGHT, False),
    ("", "n = int('x')\ndef f(x): return x", "assert f(8) == 8", ERROR, False),
    ("", "def f(input_list): return input_list\nf.x", "assert f(8) == 8", ERROR, False),
    ("", "def f(x): return x", "from collections import NoSuchName\nassert f(1) == 1", UNJUDGED,
     False),
]  # fmt: skip


SHAPE = "class Shape:\n    def area(self): raise NotImplementedError\n"
CHAIN = (
    f"{NODE}def chain(n):\n    head = None\n    for v in range(n): head = Node(v, head)\n"
    "    return head\ndef length(n):\n    c = 0\n    while n: c, n = c + 1, n.next\n    return c\n"
)
CODED = (
    "class Coded(Exception):\n    def __init__(self, code):\n"
    "        super().__init__(f'code {code}')\n        self.code = code\n"
)
KINDS: list[Row] = [
    # What a setup defines, and long chains of it.
    (CHAIN, "def f(n): return chain(n)", "assert length(f(5000)) == 5000", RIGHT, False),
    (CHAIN, "def f(n): return length(n)", "assert f(chain(5000)) == 5000", RIGHT, False),
    (CHAIN, "def f(n): n.next.next.value = 9",
     "c = chain(4000)\nf(c)\nassert c.next.next.value == 9", RIGHT, False),
    (CODED, "def f(x): raise Coded(x)", "try: f(3)\nexcept Coded as e: assert e.code == 3\n"
     "else: assert False", RIGHT, False),
    (CODED, "def f(x): return Coded(x)", "assert f(3).code == 3", RIGHT, False),
    ("from collections import namedtuple\nPoint = namedtuple('P', 'x y')",
     "def f(): return Point(1, 2)", "assert f().x == 1 and f() == Point(1, 2)", RIGHT, False),
    (SHAPE, "class Box(Shape):\n    def area(self): return 4\ndef f(): return Box()",
     "assert f().area() == 4", RIGHT, True),
    ("LOG = []", "def f(x): LOG.append(x)", "f(3)\nassert LOG == [3]", RIGHT, True),
    ("from math import *", "def sqrt(x): return 0\ndef zf(x): return 0",
     "assert zf(2) == sqrt(2)", WRONG, False),
    # Exceptions of libraries that the tests name, and others.
    ("", "import json\ndef f(x): json.loads(x)", "import json\ntry: f('{')\n"
     "except json.JSONDecodeError: pass\nelse: assert False", RIGHT, False),
    ("", "import decimal\ndef f(x): raise decimal.InvalidOperation(x)",
     "from decimal import InvalidOperation\ntry: f(1)\nexcept InvalidOperation: pass", RIGHT,
     False),
    ("", "def f(x): raise ValueError(x)", "import json\ntry: f('{')\n"
     "except json.JSONDecodeError: pass", ERROR, False),
    ("", "import unittest\ndef f(x): raise unittest.SkipTest('no')", "import unittest\n"
     "class T(unittest.TestCase):\n    def runTest(self): self.assertEqual(f(1), 2)\n"
     "assert T().run().wasSuccessful()", WRONG, False),
    ("", "def f(x): raise IndexError", "class S:\n    def __getitem__(self, i): return f(i)\n"
     "for x in zip(S(), [0]): assert x == 1", ERROR, False),
    ("", "def f(x): return x + 1", "from concurrent.futures import ThreadPoolExecutor\n"
     "with ThreadPoolExecutor(4) as pool: assert list(pool.map(f, [1, 2, 3])) == [2, 3, 4]",
     RIGHT, False),
    # Arrays.
    ("", "import numpy as np\ndef f(x): return np.matrix([[1, 2]])",
     "import numpy as np\nassert (f(1) == np.array([[1, 2]])).all()", RIGHT, False),
    ("", "import numpy as np\ndef f(x): return np.empty((0, 3))",
     "import numpy as np\nassert np.allclose(f(1).sum(axis=1), 1)", WRONG, False),
    ("", "import numpy as np\ndef f(x): return [1, 2]", "import numpy as np\n"
     "np.testing.assert_allclose(desired=[1, 2], actual=f(1))", RIGHT, False),
    ("", "import numpy as np\ndef f(x): return np.empty((0, 1))",
     "import numpy as np\nassert np.array_equiv(f(1), [2, 4])", WRONG, False),
    ("", "import numpy as np\ndef f(x): return np.empty(0)",
     "import numpy as np\nassert np.linalg.norm(f(2) - 4) < 1e-6", WRONG, False),
    ("", "import os\nHERE = os.path.dirname(os.path.abspath(__file__))\ndef f(x): return x",
     "assert f(1) == 1", RIGHT, False),
]  # fmt: skip


@pytest.mark.parametrize(
    "rows",
    [BOTH_SIDES, ONE_PROCESS, DECIDES_NOTHING, UNUSABLE, STEERED, KINDS],
    ids=["both sides", "one process", "decides nothing", "unusable", "steered", "kinds"],
)
async def test_the_right_verdict(sandbox: SandboxClient, rows: Sequence[Row]) -> None:
    async def judge(place: int) -> Verdict:
        setup, code, test, *_ = rows[place]
        return await judged(sandbox, code, test, setup=setup)

    verdicts = await together(range(len(rows)), judge)
    wrong = {
        rows[place][1:3]: (one.final_status, one.shared_process, one.first_failed_case)
        for place, one in verdicts.items()
        if (one.final_status, one.shared_process) != rows[place][3:]
    }
    assert not wrong
    unusable = {verdict.detail for verdict in verdicts.values() if verdict.final_status is UNJUDGED}
    assert unusable <= {VerdictDetail.TEST_ERROR}


async def test_shapes_of_arrays_count(sandbox: SandboxClient) -> None:
    test = "import numpy as np\nassert np.allclose(f(), {})"
    rows = {
        ("[]", "3.0"): WRONG, ("[]", "[1.0]"): WRONG, ("3.0", "[3.0, 3.0]"): WRONG,
        ("[3.0, 3.0]", "3.0"): RIGHT, ("[3.0, 4.0]", "3.0"): WRONG,
        ("(1.0, 2.0)", "[1.0, 2.0]"): RIGHT, ("1e-12", "0.0"): RIGHT,
        ("[[1.0]]", "[[1.0]]"): RIGHT,
    }  # fmt: skip

    async def status(row: tuple[str, str]) -> FinalStatus:
        code = f"def f(): return {row[0]}"
        return (await judged(sandbox, code, test.format(row[1]))).final_status

    assert await together(rows, status) == rows
