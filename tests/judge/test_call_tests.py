"""Calls of a function by name: what an answer prints, how it is found, how its values compare."""

import json

import pytest

from services.judge.judging import judge_answer
from services.judge.sandbox import SandboxClient
from shared.statuses import FinalStatus, VerdictDetail
from tests.judge.tasks import fenced, judge_code, make_task, stdio, together, with_tests

RIGHT, WRONG, ERROR = FinalStatus.SUCCESS, FinalStatus.WRONG_ANSWER, FinalStatus.RUNTIME_ERROR
LCB, APPS = {"convention": "livecodebench"}, {"convention": "apps"}
RECURSIVE = "def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)"

# Code, arguments, expected result, further fields, verdict.
Row = tuple[str, str, str, dict[str, object], FinalStatus]
WHAT_IS_PRINTED: list[Row] = [
    ("def f(a):\n    print('3')\n    return a", "3", "3", {}, RIGHT),
    ("def f(a):\n    print('3')\n    return 4", "3", "3", {}, WRONG),
    ("def f(a):\n    print(3)", "3", "3", {}, WRONG),
    ("print('x' * 10**6)\ndef f(a):\n    return a", "3", "3", {}, RIGHT),
    ("import sys\ndef f(a):\n    sys.stdout.write('null')\n    sys.stdout.close()\n    return a",
     "3", "3", {}, RIGHT),
    ("def f(a):\n    return 4\nif __name__ == '__main__':\n    print(3)", "3", "3", {}, WRONG),
    ("def f(a):\n    return a\nif __name__ == '__main__':\n    raise ValueError", "3", "3", {},
     RIGHT),
    ("def f(a):\n    return a\nn = int(input())\nprint(f(n))", "3", "3", {}, RIGHT),
    ("n = int(input())\nimport math\ndef f(a):\n    return math.floor(a)\nprint(f(n))", "3", "3",
     {}, RIGHT),
    ("import sys\ndata = sys.stdin.read()\ndef f(a):\n    return a + len(data)", "3", "3", {},
     RIGHT),
]  # fmt: skip
FAILURES: list[Row] = [
    ("def f(a):\n    raise ValueError('no')", "1", "", {}, ERROR),
    ("def f(a):\n    assert False", "1", "2", {}, ERROR),
    ("def f(a):\n    raise SystemExit(0)", "1", "", {}, ERROR),
    ("def f(a):\n    raise StopIteration", "1", "null", {}, ERROR),
    ("import os\ndef f(a):\n    os._exit(0)", "1", "", {}, ERROR),
    ("def f(a):\n    raise KeyboardInterrupt", "1", "", {}, ERROR),
    ("def f(a, b):\n    return a", "1", "1", {}, ERROR),
    ("f = 3", "3", "3", {}, ERROR),
    (RECURSIVE.replace("n == 0", "False"), "3", "3", {}, ERROR),
]
VALUES: list[Row] = [
    ("def f(a):\n    return '2'", "1", "2", {}, WRONG),
    ("def f(a):\n    return 12", "1", '"12"', {}, WRONG),
    ("def f(a):\n    return a[::-1]", '"ab"', "ba", {}, RIGHT),
    ("def f(a):\n    return a == 1", "1", "true", {}, RIGHT),
    ("def f(a):\n    pass", "1", "", {}, WRONG),
    ("def f(a):\n    return a / 2", "1", "0.5", {}, RIGHT),
    ("def f(a):\n    return 2.0", "1", "2", LCB, RIGHT),
    ("def f(a):\n    return (1, 2)", "1", "[1, 2]", LCB, RIGHT),
    ("def f(a):\n    return [(1, 2)]", "1", "[[1, 2]]", LCB, WRONG),
    ("def f(a):\n    return [(1, 2)]", "1", "[[1, 2]]", {}, RIGHT),
    ("def f(a):\n    return [(1, 2)]", "1", "[[[1, 2]]]", APPS, RIGHT),
    ("def f(a):\n    return 5", "1", "[5]", APPS, RIGHT),
    ("def f(a):\n    return 5", "1", "[5]", LCB, WRONG),
    ("def f(a):\n    return {1: 2}", "1", '{"1": 2}', {}, RIGHT),
    ("def f(a):\n    return a[1]", '{"1": 2}', "2", APPS, RIGHT),
    ("def f(a):\n    return {1, 2}", "1", "[1, 2]", LCB, WRONG),
    ("def f(a):\n    return (x for x in [1, 2])", "1", "[1, 2]", LCB, WRONG),
    ("class Any:\n    def __eq__(self, _):\n        return True\ndef f(a):\n    return Any()", "1",
     "2", LCB, WRONG),
    ("class N(int):\n    __eq__ = lambda *a: 1\ndef f(a):\n    return N(7)", "1", "2", LCB, WRONG),
    ("def f(a):\n    return a * 10", "1" + "0" * 5000, "1" + "0" * 5001, {}, RIGHT),
    ("def f(a):\n    return a", "-" + "7" * 6000, "7" * 6000, LCB, WRONG),
    ("def f(a, b):\n    return a + b", "\n1\n\n2\n", "3\n", {}, RIGHT),
    ("def f(a, b):\n    return a + b", "1\r\n2\r\n", "3", LCB, RIGHT),
    ("def f():\n    return 3", "", "3", {}, RIGHT),
    ("def f(a):\n    return float('inf')", "1", "Infinity", {}, RIGHT),
    ("def f(a):\n    a.append(1)\n    return a", "[]", "[1]", {}, RIGHT),
]  # fmt: skip
HOW_IT_IS_FOUND: list[Row] = [
    ("class Solution:\n    def f(self, a):\n        return [a, None]", "1", "[1, null]", {}, RIGHT),
    ("class Solution:\n    def search(self, a, b):\n        return a.index(b)", "[4, 6]\n6", "1",
     {"fn_name": "search"}, RIGHT),
    ("class Solution:\n    def sum(self, a):\n        return a + 1", "1", "2",
     {"fn_name": "sum", **LCB}, RIGHT),
    ("def f(a):\n    return 1\nclass Solution:\n    def f(self, a):\n        return 2", "1", "2",
     {}, RIGHT),
    ("class Solution:\n    def g(self, a):\n        return 2\ndef f(a):\n    return 1", "1", "1",
     {}, RIGHT),
    ("class Solution:\n    @staticmethod\n    def f(a):\n        return a", "1", "1", {}, RIGHT),
    ("class A:\n    def f(self, a):\n        return a\nclass Solution(A):\n    pass", "1", "1", {},
     RIGHT),
    ("class Solution:\n    def __init__(self):\n        raise ValueError\n    def f(self, a):\n"
     "        return a", "1", "1", {}, ERROR),
    ("f = lambda a: a", "1", "1", {}, RIGHT),
    ("from functools import partial\nf = partial(pow, 2)", "3", "8", {}, RIGHT),
]  # fmt: skip
WHAT_STANDS_BEFORE: list[Row] = [
    ("def f(a: List[int]) -> float:\n    return sqrt(sum(a))", "[1, 3]", "2.0", {}, RIGHT),
    ("def f(a):\n    return defaultdict(int)[a] + inf", "1", "Infinity", LCB, RIGHT),
    ("def f(a):\n    return gcd(*a)", "[4, 6]", "2", APPS, RIGHT),
    ("from __future__ import annotations\ndef f(a: Missing):\n    return a", "1", "1", LCB, RIGHT),
    ("def gcd(a, b):\n    return 7\ndef f(a):\n    return gcd(*a)", "[4, 6]", "7", LCB, RIGHT),
    (RECURSIVE, "998", "998", {}, RIGHT),
    (RECURSIVE, "1200", "1200", {}, ERROR),
    (RECURSIVE, "40000", "40000", LCB, RIGHT),
    ("import sys\nsys.setrecursionlimit(3000)\n" + RECURSIVE, "2998", "2998", {}, RIGHT),
]


@pytest.mark.parametrize(
    "rows",
    [WHAT_IS_PRINTED, FAILURES, VALUES, HOW_IT_IS_FOUND, WHAT_STANDS_BEFORE],
    ids=["printed", "failures", "values", "found", "before"],
)
async def test_calls_have_the_right_verdict(sandbox: SandboxClient, rows: list[Row]) -> None:
    async def status(place: int) -> FinalStatus:
        code, arguments, expected, fields, _ = rows[place]
        problem = stdio((arguments, expected), **{"fn_name": "f", **fields})
        return (await judge_code(sandbox, problem, code)).final_status

    results = await together(range(len(rows)), status)
    assert [(rows[i], end) for i, end in results.items() if end is not rows[i][4]] == []


async def test_lists_of_arguments(sandbox: SandboxClient) -> None:
    problem = with_tests(fn_name="f", inputs=[[1237, "a"], [[12], "b"]], outputs=[[0], "b"])
    code = "def f(a, b):\n    return 0 if a == 1237 else b"
    assert (await judge_code(sandbox, problem, code)).case_codes == [1, 1]


async def test_each_call_has_a_process_of_its_own(sandbox: SandboxClient) -> None:
    code = "seen = []\ndef f(a):\n    seen.append(a)\n    return len(seen)"
    assert (await judge_code(sandbox, stdio(*[("1", "1")] * 5, fn_name="f"), code)).accepted


ONE = stdio(("1", "1"), fn_name="f")


async def test_a_missing_function_is_named(sandbox: SandboxClient) -> None:
    imported = stdio(("4\n6", "2"), fn_name="gcd", **LCB)
    for problem, code in ((ONE, "def g(a):\n    return a"), (imported, "x = 1")):
        verdict = await judge_code(sandbox, problem, code)
        assert (verdict.final_status, verdict.detail) == (ERROR, VerdictDetail.MISSING_FUNCTION)
    for code in ("from math import gcd", "from math import *"):
        assert (await judge_code(sandbox, imported, code)).accepted


async def test_a_wrong_result_is_shown(sandbox: SandboxClient) -> None:
    failed = (await judge_code(sandbox, ONE, "def f(a):\n    return [a, 'x']")).first_failed_case
    assert failed is not None
    assert (failed.actual, failed.stderr or "") == ("[1, 'x']", "")


async def test_arguments_that_are_not_json_are_no_verdict(sandbox: SandboxClient) -> None:
    problem = stdio(("1 2", "3"), fn_name="f")
    verdict = await judge_code(sandbox, problem, "def f(*a):\n    return 3")
    expected = FinalStatus.API_ERROR, VerdictDetail.TEST_ERROR
    assert (verdict.final_status, verdict.detail) == expected


async def test_a_call_is_not_charged_for_the_one_before(sandbox: SandboxClient) -> None:
    large = json.dumps([[n, str(n)] for n in range(100_000)])
    problem = stdio((large, "1"), ("1", "1"), fn_name="f")
    code = fenced("def f(a):\n    return 1")
    first, second = (
        await judge_answer(make_task(sandbox, problem, code, "sandbox.timeout=20"))
    ).cases
    assert first.cpu_time is not None and second.cpu_time is not None
    assert second.cpu_time < first.cpu_time / 8
