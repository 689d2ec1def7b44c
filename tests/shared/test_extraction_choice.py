"""Choice of the answer among several code blocks."""

import pytest

from shared.extraction import extract
from shared.statuses import ExtractionPolicy
from shared.statuses import ExtractionReason as Reason

DRAFT = "def solve(n):\n    return n"
SOLVE = "def solve(n):\n    return n + 1"
BROKEN = "def solve(n)\n    return n + 1"
HELPER = "def helper(n):\n    return n"


def python(*codes: str, label: str = "python") -> str:
    return "\n\nSo:\n\n".join(f"```{label}\n{code}\n```" for code in codes)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (ExtractionPolicy.LAST, SOLVE),
        (ExtractionPolicy.FIRST, DRAFT),
        (ExtractionPolicy.SUBSTANCE, SOLVE),
    ],
)
@pytest.mark.parametrize("entry_point", [None, "solve"])
@pytest.mark.parametrize("label", ["python", ""])
def test_policies_on_two_complete_answers(policy, code, entry_point, label):
    completion = python(DRAFT, SOLVE, label=label)
    assert extract(completion, entry_point=entry_point, policy=policy).code == code


def test_last_is_the_default():
    assert extract(python(DRAFT, SOLVE)) == extract(
        python(DRAFT, SOLVE), policy=ExtractionPolicy("last")
    )


@pytest.mark.parametrize("label", ["python", ""])
@pytest.mark.parametrize(
    "after",
    [
        "print(solve(3))",
        "n = 3\nassert solve(n) == 4",
        "from solution import solve\nprint(solve(3))",
        ">>> solve(3)\n4",
        ">>> n = int(input())\n>>> solve(n)",
        "solve(3)  # gives 4",
        "solve(3) -> 4",
        "4",
        "Hello, world",
        "Complexity: O(n)",
        "total += n",
        "return n + 1",
        "    return n + 1",
        "    for i in range(n):\n        total += i",
        "else:\n    n = 1",
        "def test():\n    assert solve(1) == 2\n\ntest()",
        "from solution import solve\n\ndef test_solve():\n    assert solve(1) == 2",
        "import unittest\n\nclass Test(unittest.TestCase):\n    def test(self):\n"
        "        self.assertEqual(solve(1), 2)",
        "def main():\n    print(solve(int(input())))",
    ],
)
def test_what_cannot_be_an_answer_is_passed_over(after, label):
    completion = f"{python(SOLVE)}\n\nFor example:\n\n{python(after, label=label)}"
    assert extract(completion).code == SOLVE
    assert extract(completion, entry_point="solve").code == SOLVE
    # Between two of the kind, too.
    assert extract(python(after, SOLVE, after, label=label)).code == SOLVE


@pytest.mark.parametrize(
    "code",
    [
        "print(42)",
        "n = int(input())\nprint(n + 1)",
        "import sys\nprint(len(sys.stdin.read()))",
        "from math import *\nprint(sqrt(4))",
        "def solve(n):\n    return n and solve(n - 1)",
        "def other(solve):\n    return solve(1)",
        "from operator import neg as solve\n\ndef other(n):\n    return solve(n)",
        "def other(n):\n    return n.solve(n)",
        "def other(n):\n    return missing(n)",
        "try:\n    n = int(input())\nexcept EOFError as solve:\n    print(solve)",
        "match input():\n    case [solve, *_]:\n        print(solve)",
        BROKEN,
        "for i in range(int(input()):\n    print(i)",
        "class Solution\n    def solve(self, n):\n        return n",
    ],
)
def test_the_last_block_counts_if_it_could_be_an_answer(code):
    assert extract(python(SOLVE, code)).code == code


def test_a_test_of_a_broken_answer_is_no_answer():
    after = "def test():\n    assert solve(1) == 2"
    assert extract(python(BROKEN, after)).code == BROKEN


@pytest.mark.parametrize("code", [BROKEN, "print(42)"])
def test_substance_prefers_an_earlier_block_with_more_of_it(code):
    policy = ExtractionPolicy.SUBSTANCE
    assert extract(python(SOLVE, code), policy=policy).code == SOLVE
    assert extract(python(code), policy=policy).code == code


@pytest.mark.parametrize(
    "definition",
    [
        SOLVE,
        BROKEN,
        "async def solve(n):\n    return n",
        "class solve:\n    pass",
        "solve = lambda n: n + 1",
        "class Solution:\n    def solve(self, n):\n        return n",
    ],
)
@pytest.mark.parametrize("after", [HELPER, "def solves(n):\n    return solve(n)", "print(42)"])
def test_a_known_entry_point_decides(definition, after):
    completion = python(HELPER, definition, after)
    assert extract(completion, entry_point="solve").code == definition
    assert extract(completion, entry_point="nowhere") == extract(completion)


def test_an_entry_point_that_only_a_block_without_label_defines():
    found = extract(f"```\n{SOLVE}\n```\nwith\n```python\n{HELPER}\n```", entry_point="solve")
    assert (found.code, found.reason) == (SOLVE, Reason.UNLABELLED)


@pytest.mark.parametrize("label", ["python", ""])
def test_an_entry_point_that_only_a_truncated_block_defines(label):
    completion = f"{python(HELPER)}\nand\n```{label}\ndef solve(n):\n    return (n"
    found = extract(completion, entry_point="solve")
    assert (found.code, found.reason) == ("def solve(n):\n    return (n", Reason.UNCLOSED_FENCE)
    assert extract(completion).code == HELPER


@pytest.mark.parametrize("policy", ExtractionPolicy)
def test_a_block_that_cannot_be_the_answer_is_better_than_none(policy):
    assert extract(python("return n + 1"), policy=policy).code == "return n + 1"
    assert extract(python("4", label=""), policy=policy).code == "4"
    completion = "```python\nn += 1\n```\nNow complete:\n```python\ndef solve(n"
    if policy is not ExtractionPolicy.SUBSTANCE:
        assert extract(completion, policy=policy).reason is Reason.UNCLOSED_FENCE
