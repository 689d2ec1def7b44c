"""Function tests in two processes, natively and by ``/run_code``: what crosses, and the codes."""

from collections.abc import AsyncIterator

import pytest

from services.judge.methods import functions
from services.judge.sandbox import SandboxClient
from shared.schemas import Verdict
from shared.statuses import CaseCode, FinalStatus, VerdictDetail
from tests.judge.pools import OpenPool
from tests.judge.stand_ins import WithoutCases
from tests.judge.tasks import judge_code, together, with_tests

PASSED, WRONG, RUNTIME, TIMEOUT, COMPILE, UNJUDGED = (
    *(CaseCode.PASSED, CaseCode.WRONG_ANSWER, CaseCode.RUNTIME_ERROR),
    *(CaseCode.TIMEOUT, CaseCode.COMPILE_ERROR),
    CaseCode.API_ERROR,
)


@pytest.fixture(params=[SandboxClient, WithoutCases], ids=["natively", "by /run_code"])
async def client(request: pytest.FixtureRequest, sandbox_url: str) -> AsyncIterator[SandboxClient]:
    async with request.param(OpenPool([sandbox_url]), max_attempts=2, retry_budget=30) as client:
        yield client


async def judged(
    client: SandboxClient,
    code: str,
    *tests: str,
    setup: str = "",
    limits: tuple[str, ...] = (),
    per_call: bool = False,
) -> Verdict:
    problem = with_tests(test_list=tests, test_setup_code=setup, limit_per_call=per_call)
    return await judge_code(client, problem, code, *limits)


async def codes(client: SandboxClient, code: str, *tests: str, setup: str = "") -> list[int]:
    verdict = await judged(client, code, *tests, setup=setup)
    assert not verdict.shared_process
    return verdict.case_codes


SAME = "def f(x): return x\n"


RIGHT = [
    (SAME, "a = [1]; assert f(a) is a"),
    (SAME, "a = [[1]]; assert f([a, a])[1] is a"),
    ("def f(x): x.append(2)", "a = [1]; assert f(a) is None and a == [1, 2]"),
    ("def f(x): x[0].add(2)", "a = {1}; f((a,)); assert a == {1, 2}"),
    ("def f(x): x['b'] = x; return x", "a = {}; assert f(a)['b'] is a"),
    ("def f(x, *, y=0, **z): return x, y, z", "assert f(1, y=2, w=3) == (1, 2, {'w': 3})"),
    ("def f(x): return lambda y: x + y", "assert f(1)(2) == 3"),
    ("def f(x): return map(int, x)", "assert sum(f('123')) == 6"),
    ("async def f(x): return x", "import asyncio; assert asyncio.run(f(2)) == 2"),
    ("import re\ndef f(x): return re.match('a', x)", "assert f('a') and not f('b')"),
    (
        "class P:\n    pass\ndef p(): return P()\ndef f(x): return isinstance(x, P)",
        "assert f(p())",
    ),
    ("f = 2", "assert callable(f)\ntry: f(1)\nexcept TypeError: pass"),
    ("import sys\ndef f(x): return sys.getsizeof(x)", "assert f((1,)) == sys.getsizeof((1,))"),
    ("def f(n): return [0] * n", "assert len(f(10**6)) == 10**6"),
    ("def sum(a, b): return a + b", "assert sum(10, 15) == 25"),
]


async def test_right_answers(client: SandboxClient) -> None:
    verdicts = await together(RIGHT, lambda pair: judged(client, *pair))
    assert {
        pair: verdict.first_failed_case or verdict.final_status
        for pair, verdict in verdicts.items()
        if (verdict.accepted, verdict.shared_process) != (True, False)
    } == {}


CODES = [
    ("def f(x): return 1", ["assert f(1) == 1", "assert f(2) == 2"], [PASSED, WRONG]),
    ("def f(x): assert x > 1", ["assert f(1) == 1", "f(2)"], [WRONG, PASSED]),
    ("def f(x): raise ValueError", ["assert f(1)", "assert True"], [RUNTIME, PASSED]),
    ("def f(x): raise SystemExit", ["assert f(1)", "assert True"], [RUNTIME, PASSED]),
    ("assert False\ndef f(x): pass", ["f(1)", "f(1)"], [WRONG, WRONG]),
    ("1 / 0\ndef f(x): pass", ["f(1)", "assert True"], [RUNTIME, RUNTIME]),
    ("def f(x):", ["f(1)", "f(1)"], [COMPILE, COMPILE]),
    ("def g(x): pass", ["f(1)", "assert True"], [RUNTIME, PASSED]),
    (
        "import os\ndef f(x): os._exit(0)",
        ["assert True; f", "f(1)", "f(1)"],
        [PASSED, RUNTIME, RUNTIME],
    ),
    ("import os\ndef f(x): os._exit(0)", ["try: f(1)\nexcept BaseException: pass"], [RUNTIME]),
    (SAME, ["assert f(1) == expected(1)", "f("], [UNJUDGED, UNJUDGED]),
]  # fmt: skip


async def test_codes(client: SandboxClient) -> None:
    async def judge_row(row: int) -> list[int]:
        code, tests, _ = CODES[row]
        return await codes(client, code, *tests)

    results = await together(range(len(CODES)), judge_row)
    assert [(CODES[row], given) for row, given in results.items() if given != CODES[row][2]] == []


async def test_a_setup_is_on_both_sides(client: SandboxClient) -> None:
    setup = "import math\nN = 4\ndef right(x): return 2 * x\n"
    code = "def f(x): return right(math.floor(x)) + N"
    assert await codes(client, code, "assert f(2) == 8", "assert N == 4", setup=setup) == [1, 1]


async def test_tracebacks_show_both_sides(client: SandboxClient) -> None:
    verdict = await judged(client, "def f(x):\n    return 1 / x", "assert f(0) == 3")
    assert verdict.first_failed_case is not None
    lines = (verdict.first_failed_case.stderr or "").splitlines()
    assert 'File "<test>", line 1, in <module>' in lines[1]
    assert "    return 1 / x" in lines
    assert lines[-1] == "ZeroDivisionError: division by zero"


async def test_causes_of_runtime_errors(client: SandboxClient) -> None:
    details = {
        "import os\nos._exit(0)": VerdictDetail.EARLY_EXIT,
        "import os\nos.kill(os.getpid(), 11)": "SIGSEGV",
        "def f(x): return [0] * 10**12": VerdictDetail.MEMORY_LIMIT,
        "def f(x): raise SystemExit(0)": VerdictDetail.EARLY_EXIT,
    }
    verdicts = await together(details, lambda code: judged(client, code, "assert f(0) == 3"))
    found = {code: (one.final_status, one.detail) for code, one in verdicts.items()}
    assert found == {code: (FinalStatus.RUNTIME_ERROR, one) for code, one in details.items()}


async def test_values_that_turn_out_not_to_cross(client: SandboxClient) -> None:
    tests = [
        "class A: pass\nassert f(A())",
        "import itertools; assert f(itertools.count())",
        "import functools; assert f(functools.partial(int, base=2))",
    ]
    verdicts = await together(tests, lambda test: judged(client, SAME, test))
    found = {test: (one.accepted, one.shared_process) for test, one in verdicts.items()}
    assert found == dict.fromkeys(tests, (True, True))


async def test_cpu_time_of_both_processes_counts(sandbox: SandboxClient) -> None:
    """A run that reported its tests after the limit is a time-out all the same."""
    spin = "import time\nend = time.process_time() + 0.65\n"
    spin += "while time.process_time() < end: sum(range(10**5))\n"
    test = "assert f(1) == 1"
    answers = {"the answer's": (f"{spin}{SAME}", test), "the tests'": (SAME, f"{spin}{test}")}
    limits = ("sandbox.timeout=0.5",)
    verdicts = await together(
        answers, lambda work: judged(sandbox, *answers[work], limits=limits), at_a_time=2
    )
    found = {work: verdict.final_status for work, verdict in verdicts.items()}
    assert found == dict.fromkeys(answers, FinalStatus.TIMEOUT)


async def test_what_does_not_end(sandbox: SandboxClient) -> None:
    answers = [
        "def f(x):\n    while True: pass",
        "import time\ndef f(x): time.sleep(99)",
        "while True: pass",
        "def f(x):\n    while True: yield x",
    ]
    limits = ("sandbox.timeout=0.5", "judge.wall_factor=2", "sandbox.memory_limit_mb=4096")
    tests = ("assert sum(f(1)) == 2", "assert f")
    verdicts = await together(answers, lambda code: judged(sandbox, code, *tests, limits=limits))
    found = {code: verdict.final_status for code, verdict in verdicts.items()}
    assert found == dict.fromkeys(answers, FinalStatus.TIMEOUT)


async def test_a_limit_of_each_call_and_of_all(
    sandbox: SandboxClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    spin = "import time\ndef f(x):\n    end = time.process_time() + x\n"
    spin += "    while time.process_time() < end: pass\n"
    tests = ("for _ in range(4): f(0.2)", "assert True")
    limits = ("sandbox.timeout=0.5", "judge.wall_factor=2")

    async def statuses(code: str, *tests: str, per_call: bool = True) -> list[int]:
        return (await judged(sandbox, code, *tests, limits=limits, per_call=per_call)).case_codes

    assert await statuses(spin, *tests, per_call=False) == [TIMEOUT, TIMEOUT]
    assert await statuses(spin, *tests) == [PASSED, PASSED]
    assert await statuses(spin, "assert True", "f(2)", "assert True") == [PASSED, TIMEOUT, TIMEOUT]
    assert await statuses("import time\ndef f(x): time.sleep(x)", "f(9)") == [TIMEOUT]
    assert await statuses("while True: pass", "f(1)") == [TIMEOUT]
    monkeypatch.setattr(functions, "ALL_CALLS", 0.5)
    assert await statuses(spin, *tests) == [TIMEOUT, TIMEOUT]
