"""Function tests end to end on this machine: accepted programs, and statuses of the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.judge.methods.functions import codes_of, function_program, reported_codes
from shared.extraction import Extraction, extract
from shared.schemas import HumanEvalTests, MbppTests
from shared.statuses import CaseCode, ExtractionReason
from tests.judge.local import run_program

PROMPT = '''from typing import List


def helper(values: List[int]) -> int:
    return len(values)


def total(values: List[int]) -> int:
    """Add up the values, and their number."""
'''
HUMANEVAL = HumanEvalTests(
    test="def check(total):\n    assert total([1, 2]) == 5\n    assert total([]) == 0\n",
    entry_point="total",
    prompt=PROMPT,
)
RIGHT = "def total(values: List[int]) -> int:\n    return sum(values) + helper(values)\n"
MBPP = MbppTests(test_list=["assert f(1) == 2", "assert f(2) == 3", "assert f(3) == 4"])
PASSED, WRONG, RUNTIME, TIMEOUT, COMPILE = (
    CaseCode.PASSED,
    CaseCode.WRONG_ANSWER,
    CaseCode.RUNTIME_ERROR,
    CaseCode.TIMEOUT,
    CaseCode.COMPILE_ERROR,
)


def judge_humaneval(code, reason=ExtractionReason.FENCED, timeout=10.0):
    answer = Extraction(code, reason)
    codes, detail, stderr = run_program(function_program(answer, HUMANEVAL), timeout=timeout)
    assert len(codes) == 1
    return codes[0], detail, stderr


def judge_mbpp(code, tests=MBPP, timeout=10.0):
    answer = Extraction(code, ExtractionReason.FENCED)
    return run_program(function_program(answer, tests), len(tests.test_list), timeout)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(RIGHT, id="with the prompt's helper and imports"),
        pytest.param(PROMPT + "    return sum(values) + helper(values)\n", id="the prompt again"),
        pytest.param(RIGHT + "\nif __name__ == '__main__':\n    exit(1)\n", id="main guard"),
        pytest.param(RIGHT + "\nprint(total([1]))\nprint('x' * 10**7)", id="example calls"),
        pytest.param(RIGHT + "\nn = int(input())\nprint(total([n]))", id="reads standard input"),
        pytest.param(RIGHT + "\ndef check(candidate): raise ValueError", id="a check of its own"),
        pytest.param("import sys\nsys.stdout = None\nsys.stderr.close()\n" + RIGHT, id="streams"),
        pytest.param("s = '\udc80é'\n".replace("\udc80", "\\udc80") + RIGHT, id="not ASCII"),
        pytest.param(
            "from __future__ import annotations\nfrom dataclasses import dataclass\n"
            "@dataclass\nclass A:\n    x: int\n" + RIGHT,
            id="dataclass",
        ),
        pytest.param(
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
            + RIGHT,
            id="a thread that stays",
        ),
        pytest.param("import atexit\natexit.register(print, 'bye')\n" + RIGHT, id="atexit"),
    ],
)
def test_right_answers_are_accepted(code):
    assert judge_humaneval(code)[:2] == (PASSED, None)


def test_a_body_continues_the_prompt():
    answer = extract("    return sum(values) + helper(values)\n\nprint(total([]")
    assert judge_humaneval(answer.code, answer.reason)[:2] == (PASSED, None)


@pytest.mark.parametrize(
    ("code", "outcome", "detail"),
    [
        ("def total(v):\n    return 0", WRONG, None),
        ("def total(v):\n    return 1 / 0", RUNTIME, None),
        ("def other(v):\n    return 0", RUNTIME, None),
        ("def total(v):\n    raise MemoryError", RUNTIME, "memory_limit"),
        (RIGHT + "exit(0)", RUNTIME, "early_exit"),
        (RIGHT + "import os; os._exit(0)", RUNTIME, "early_exit"),
        ("import sys\ndef total(v):\n    sys.exit()", RUNTIME, "early_exit"),
        ("import os\ndef total(v):\n    os._exit(0)", RUNTIME, "early_exit"),
        (RIGHT + "import os; os.kill(os.getpid(), 9)", RUNTIME, "SIGKILL"),
        ("def total(v:\n    return 0", COMPILE, None),
        ("x = '\ud800'", COMPILE, None),
    ],
)
def test_wrong_answers_are_told_apart(code, outcome, detail):
    assert judge_humaneval(code)[:2] == (outcome, detail)


def test_mbpp_keeps_what_passed_before_a_hang_or_a_crash():
    hang = "def f(n):\n    while n == 2: pass\n    return n + 1"
    assert judge_mbpp(hang, timeout=2)[0] == [PASSED, TIMEOUT, TIMEOUT]
    leave = "import os\ndef f(n):\n    if n == 3: os._exit(0)\n    return n + 1"
    assert judge_mbpp(leave)[:2] == ([PASSED, PASSED, RUNTIME], "early_exit")


def test_mbpp_that_does_not_load_fails_every_case():
    assert judge_mbpp("def f(n) return n")[0] == [COMPILE] * 3
    assert judge_mbpp("import nothing_of_this_name")[0] == [RUNTIME] * 3


@pytest.mark.parametrize("setup", ["offset = 1", "offset = Offset(1).n"])
def test_mbpp_setup_runs_where_it_can(setup):
    tests = MbppTests(test_list=["assert f(1) == 2"], test_setup_code=setup)
    code = "class Offset:\n    def __init__(self, n): self.n = n\ndef f(n): return n + offset"
    assert judge_mbpp(code, tests)[0] == [PASSED]


@given(st.text(), st.booleans(), st.integers(1, 5))
def test_without_the_token_nothing_passes(stdout, timed_out, cases):
    codes = codes_of(reported_codes(stdout, "7a6f5c"), cases, timed_out)
    assert codes == [TIMEOUT if timed_out else RUNTIME] * cases or "7a6f5c" in stdout
    torn = codes_of(reported_codes(f"{stdout}\nt [1]\n\nt [1, ", "t"), cases, timed_out)
    assert torn[0] == (TIMEOUT if timed_out and cases == 1 else PASSED)


def test_future_imports_of_the_prompt_hold_for_the_answer() -> None:
    tests = HUMANEVAL.model_copy(update={"prompt": f"from __future__ import annotations\n{PROMPT}"})
    answer = Extraction(
        "def total(values: Missing):\n    return sum(values) + helper(values)\n",
        ExtractionReason.FENCED,
    )
    codes, _, _ = run_program(function_program(answer, tests))
    assert codes == [CaseCode.PASSED]
