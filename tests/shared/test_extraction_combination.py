"""Combination of blocks, the functions that tests call, and ``__future__`` imports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.extraction import called_functions, extract, future_imports
from shared.schemas import JudgedCode
from shared.statuses import ExtractionPolicy
from shared.statuses import ExtractionReason as Reason

HELPER = "def helper(n):\n    return n"
SOLVE = "def solve(n):\n    return helper(n)"


def python(*codes: str) -> str:
    return "\n\nSo:\n\n".join(f"```python\n{code}\n```" for code in codes)


def test_a_combination_has_no_offset_and_keeps_both_texts() -> None:
    found = extract(python(HELPER, SOLVE), entry_point="solve")
    assert (found.code, found.reason, found.start) == (
        f"{HELPER}\n\n{SOLVE}",
        Reason.COMBINED,
        None,
    )
    record = JudgedCode.of(found.code, found.reason, found.start)
    assert (record.text, record.start, record.end) == (found.code, None, None)


def test_nothing_is_combined_without_need() -> None:
    whole = f"{HELPER}\n\n{SOLVE}"
    found = extract(python(HELPER, whole), entry_point="solve")
    assert (found.code, found.reason) == (whole, Reason.FENCED)


@pytest.mark.parametrize("policy", ExtractionPolicy)
def test_every_policy_combines_what_it_chose(policy: ExtractionPolicy) -> None:
    other = "def solve(n):\n    return helper(n) + 1"
    code = extract(python(HELPER, SOLVE, other), entry_point="solve", policy=policy).code
    chosen = SOLVE if policy is ExtractionPolicy.FIRST else other
    assert code == f"{HELPER}\n\n{chosen}"


@given(st.permutations(["a", "b", "c", "d"]), st.integers(0, 3))
def test_what_is_needed_is_defined_once(order: list[str], first: int) -> None:
    blocks = [f"def {name}():\n    return 1" for name in order]
    answer = f"def f():\n    return {order[first]}() + {order[-1]}()"
    code = extract(python(*blocks, answer), entry_point="f").code
    for name in order:
        assert code.count(f"def {name}(") == (name in (order[first], order[-1]))


@pytest.mark.parametrize(
    ("tests", "setup", "names"),
    [
        (["assert f(1) == 2", "assert f(2) == 3"], "", {"f"}),
        (["assert set(f([1])) == set([1])"], "", {"f"}),
        (["assert sum(1, 2) == 3"], "", {"sum"}),
        (["assert math.isclose(f(1), 2)"], "import math", {"f"}),
        (["assert g(Node(1))"], "root = Node(1)", {"g", "Node"}),
        (["assert g(f(1))"], "def f(n): return n", {"g"}),
        (["x = h()\nassert x == 1"], "", {"h"}),
        (["not Python at all"], "", set()),
        ([], "", set()),
    ],
)
def test_functions_that_tests_call(tests: list[str], setup: str, names: set[str]) -> None:
    assert called_functions(tests, setup) == names


@pytest.mark.parametrize(
    ("code", "futures", "rest"),
    [
        ("x = 1", [], "x = 1"),
        ("from __future__ import annotations\nx = 1", ["annotations"], "\nx = 1"),
        ('"""D."""\nfrom __future__ import division\n', ["division"], '"""D."""\n\n'),
        ("from __future__ import annotations; x = 1", ["annotations"], "x = 1"),
        (
            "from __future__ import (\n    annotations,\n)\nx = 1",
            ["annotations"],
            "\n\n\nx = 1",
        ),
        ("from __future__ import annotations\nx = (", [], None),
        ("s = '__future__'", [], "s = '__future__'"),
    ],
)
def test_future_imports(code: str, futures: list[str], rest: str | None) -> None:
    found, left = future_imports(code)
    assert found == [f"from __future__ import {name}" for name in futures]
    assert left == (code if rest is None else rest)
