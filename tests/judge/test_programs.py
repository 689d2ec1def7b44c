"""Function tests in the answer's process, with this repository's sandbox, whatever they need."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.judge.methods import functions
from services.judge.methods.functions import codes_of, reported_codes
from services.judge.sandbox import SandboxClient
from shared.function_plan import plan_of
from shared.schemas import Problem, Verdict
from shared.statuses import CaseCode, VerdictDetail
from tests.judge.tasks import fenced, make_task, together, verdict_of, with_tests

PROMPT = '''from typing import List


def helper(values: List[int]) -> int:
    return len(values)


def total(values: List[int]) -> int:
    """Add up the values, and their number."""
'''
TEST = "def check(total):\n    assert total([1, 2]) == 5\n    assert total([]) == 0\n"
HUMANEVAL = with_tests(test=TEST, entry_point="total", prompt=PROMPT)
FUTURE = with_tests(
    test=TEST, entry_point="total", prompt=f"from __future__ import annotations\n{PROMPT}"
)
RIGHT = "def total(values: List[int]) -> int:\n    return sum(values) + helper(values)\n"
STATEMENTS = ["assert f(1) == 2", "assert f(2) == 3", "assert f(3) == 4"]
MBPP = with_tests(test_list=STATEMENTS)
OFFSET = "class Offset:\n    def __init__(self, n): self.n = n\ndef f(n): return n + offset"
PASSED, WRONG, RUNTIME, TIMEOUT, COMPILE = (
    CaseCode.PASSED,
    CaseCode.WRONG_ANSWER,
    CaseCode.RUNTIME_ERROR,
    CaseCode.TIMEOUT,
    CaseCode.COMPILE_ERROR,
)
JudgeAll = Callable[[list[tuple[Problem, str]]], Awaitable[list[Verdict]]]


@pytest.fixture
def judge(sandbox: SandboxClient, monkeypatch: pytest.MonkeyPatch) -> JudgeAll:
    monkeypatch.setattr(
        functions, "plan_of", lambda tests: replace(plan_of(tests), shared="a test")
    )

    async def judge(answers: list[tuple[Problem, str]]) -> list[Verdict]:
        async def judge_answer(place: int) -> Verdict:
            problem, completion = answers[place]
            limits = ("sandbox.timeout=1", "judge.confirm_timeouts=false")
            return await verdict_of(make_task(sandbox, problem, completion, *limits))

        verdicts = [*(await together(range(len(answers)), judge_answer)).values()]
        assert all(verdict.shared_process for verdict in verdicts)
        return verdicts

    return judge


async def test_right_answers_are_accepted(judge: JudgeAll) -> None:
    codes = [
        RIGHT,
        PROMPT + "    return sum(values) + helper(values)\n",
        RIGHT + "\nif __name__ == '__main__':\n    exit(1)\n",
        RIGHT + "\nprint(total([1]))\nprint('x' * 10**7)",
        RIGHT + "\nn = int(input())\nprint(total([n]))",
        RIGHT + "\ndef check(candidate): raise ValueError",
        "import sys\nsys.stdout = None\nsys.stderr.close()\n" + RIGHT,
        "s = '\\udc80é'\n" + RIGHT,
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass A:\n    x: int\n" + RIGHT,
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n" + RIGHT,
        "import atexit\natexit.register(print, 'bye')\n" + RIGHT,
    ]
    answers = [(HUMANEVAL, fenced(code)) for code in codes]
    answers += [
        (HUMANEVAL, "    return sum(values) + helper(values)\n\nprint(total([]"),
        (FUTURE, fenced("def total(values: Missing):\n    return sum(values) + helper(values)\n")),
        *(
            (with_tests(test_list=STATEMENTS[:1], test_setup_code=setup), fenced(OFFSET))
            for setup in ("offset = 1", "offset = Offset(1).n")
        ),
    ]
    verdicts = await judge(answers)
    assert [
        (answer[1], verdict.first_failed_case)
        for answer, verdict in zip(answers, verdicts, strict=True)
        if not verdict.accepted
    ] == []


Outcome = tuple[list[CaseCode], VerdictDetail | str | None]


async def test_wrong_answers_are_told_apart(judge: JudgeAll) -> None:
    """MBPP tests that passed before the answer hangs or crashes keep their result."""
    rows: list[tuple[Problem, str, Outcome]] = [
        (HUMANEVAL, "def total(v):\n    return 0", ([WRONG], None)),
        (HUMANEVAL, "def total(v):\n    return 1 / 0", ([RUNTIME], None)),
        (HUMANEVAL, "def other(v):\n    return 0", ([RUNTIME], None)),
        (HUMANEVAL, "def total(v):\n    raise MemoryError", ([RUNTIME], "memory_limit")),
        (HUMANEVAL, RIGHT + "exit(0)", ([RUNTIME], "early_exit")),
        (HUMANEVAL, RIGHT + "import os; os._exit(0)", ([RUNTIME], "early_exit")),
        (HUMANEVAL, "import sys\ndef total(v):\n    sys.exit()", ([RUNTIME], "early_exit")),
        (HUMANEVAL, "import os\ndef total(v):\n    os._exit(0)", ([RUNTIME], "early_exit")),
        (HUMANEVAL, RIGHT + "import os; os.kill(os.getpid(), 9)", ([RUNTIME], "killed_twice")),
        (HUMANEVAL, "def total(v:\n    return 0", ([COMPILE], None)),
        (MBPP, "def f(n):\n    while n == 2: pass\n    return n + 1",
         ([PASSED, TIMEOUT, TIMEOUT], None)),
        (MBPP, "import os\ndef f(n):\n    if n == 3: os._exit(0)\n    return n + 1",
         ([PASSED, PASSED, RUNTIME], "early_exit")),
        (MBPP, "def f(n) return n", ([COMPILE] * 3, None)),
        (MBPP, "import nothing_of_this_name", ([RUNTIME] * 3, "missing_module")),
    ]  # fmt: skip
    verdicts = await judge([(problem, fenced(code)) for problem, code, _ in rows])
    assert [
        (code, verdict.case_codes, verdict.detail)
        for (_, code, outcome), verdict in zip(rows, verdicts, strict=True)
        if (verdict.case_codes, verdict.detail) != outcome
    ] == []


@given(st.text(), st.booleans(), st.integers(1, 5))
def test_without_the_token_nothing_passes(stdout: str, timed_out: bool, cases: int) -> None:
    codes = codes_of(reported_codes(stdout, "7a6f5c"), cases, timed_out)
    assert codes == [TIMEOUT if timed_out else RUNTIME] * cases or "7a6f5c" in stdout
    torn = codes_of(reported_codes(f"{stdout}\nt [1]\n\nt [1, ", "t"), cases, timed_out)
    assert torn[0] == (TIMEOUT if timed_out and cases == 1 else PASSED)
