"""Cheating answers to function tests: they try to pass without a solution."""

import asyncio
import json
import textwrap
from collections.abc import Mapping

import pytest

from services.judge.sandbox import SandboxClient
from shared.schemas import Problem
from shared.statuses import FinalStatus
from tests.judge.tasks import fenced, make_task, verdict_of
from tests.shared.ledgers import problem

pytestmark = pytest.mark.hostile

HUMANEVAL = problem(
    ground_truth=json.dumps(
        {
            "prompt": "def twice(x):\n",
            "entry_point": "twice",
            "test": "def check(candidate):\n    assert candidate(2) == 4\n"
            "    assert len([candidate(3)]) == 1 and candidate(3) == 6\n    assert candidate\n",
        }
    )
)
MBPP = problem(
    ground_truth=json.dumps(
        {"test_list": ["assert twice(2) == 4", "assert twice(3) == 6"], "test_setup_code": ""}
    )
)
WRONG = "\ndef twice(x):\n    return x\n"
CHEATS = {
    "wrong": "",
    "exit": "exit(0)",
    "sys.exit": "import sys; sys.exit(0)",
    "os._exit": "import os; os._exit(0)",
    "exit when called": "import os\ndef twice(x): os._exit(0)\n#",
    "SystemExit when called": "def twice(x): raise SystemExit(0)\n#",
    "exit in a finalizer": "import os\nclass A:\n  def __del__(self): os._exit(0)\na = A(); del a",
    "exit in a thread": "import os, threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.001), os._exit(0))).start(); time.sleep(1)",
    "exit functions": "import atexit, os; atexit.register(os._exit, 0)",
    "own check": "def check(candidate): pass",
    "check, again and again": "import builtins\nbuiltins.check = lambda candidate: None",
    "exec": "import builtins; builtins.exec = lambda *_, **__: None",
    "compile": "import builtins\nold = compile\n"
    "builtins.compile = lambda source, *a, **k: old('pass', '<x>', 'exec')",
    "len": "import builtins; builtins.len = lambda _: 10**6",
    "isinstance": "import builtins; builtins.isinstance = lambda *_: True",
    "BaseException": "import builtins; builtins.BaseException = builtins.AssertionError = KeyError",
    "next": "import builtins; builtins.next = lambda *_: 1",
    "AssertionError": "AssertionError = SystemExit",
    "os": "import os\nold = os._exit\nos._exit = lambda _: old(0)\n"
    "write = os.write\nos.write = lambda fd, text: write(fd, text.replace(b'0', b'1'))",
    "hook": "import sys, os; sys.excepthook = lambda *_: os._exit(0)",
    "linecache": "import linecache, os\nclass D(dict):\n"
    "  def __setitem__(self, *_): os._exit(0)\nlinecache.cache = D()",
    "tracing": "import sys\ndef trace(frame, event, arg):\n"
    "  if event == 'exception' or frame.f_code.co_name in ('<module>', 'check'):\n"
    "    try: frame.f_lineno = 99\n    except ValueError: pass\n"
    "  return trace\nsys.settrace(trace)",
    "tracing, lines skipped": "import sys\ndef trace(frame, event, arg):\n"
    "  if event == 'line' and frame.f_code.co_name == 'check':\n"
    "    try: frame.f_lineno = frame.f_code.co_firstlineno + 3\n    except ValueError: pass\n"
    "  return trace\nsys.settrace(trace)",
    "profile": "import sys, os\nsys.setprofile(lambda frame, event, arg: "
    "os._exit(0) if frame.f_code.co_name == 'check' else None)",
    "token lines": "import os\nfor fd in range(50):\n  for token in ('0' * 32, 'token', ''):\n"
    "    for codes in '[1]', '[1, 1]':\n"
    "      try: os.write(fd, f'\\n{token} {codes}\\n'.encode())\n      except OSError: pass",
    "token from standard input": "import os, sys\ntoken = sys.stdin.read() or "
    "open('/dev/stdin').read() or os.read(0, 99).decode()\n"
    "[os.write(fd, f'\\n{token} [1, 1]\\n'.encode()) for fd in (1, 3, 4) if not print(token)]\n"
    "os._exit(0)",
    "token from files": "import os, re\nfor folder in '.', '..':\n"
    "  for name in os.listdir(folder):\n"
    "    try: text = open(os.path.join(folder, name)).read()\n"
    "    except (OSError, UnicodeDecodeError): continue\n"
    "    for token in re.findall('[0-9a-f]{32}', text):\n"
    "      for fd in range(1, 9):\n"
    "        try: os.write(fd, f'\\n{token} [1, 1]\\n'.encode())\n        except OSError: pass\n"
    "os._exit(0)",
    "streams closed": "import os; os.closerange(0, 50)",
    "forked": "import os\nif os.fork(): os._exit(0)",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "main module": "import sys\nimport __main__\n__main__.PASSED = __main__.WRONG_ANSWER = 1\n"
    "__main__.code_of = lambda error: 1",
}


async def statuses(
    sandbox: SandboxClient, tests: Problem, answers: Mapping[str, str]
) -> dict[str, FinalStatus]:
    places = asyncio.Semaphore(8)

    async def status(code: str) -> FinalStatus:
        task = make_task(sandbox, tests, fenced(code), "sandbox.timeout=2", "judge.wall_factor=2")
        async with places:
            return (await verdict_of(task)).final_status

    return dict(zip(answers, await asyncio.gather(*map(status, answers.values())), strict=True))


@pytest.mark.parametrize("tests", [HUMANEVAL, MBPP], ids=["humaneval", "mbpp"])
async def test_nothing_passes_that_is_wrong(sandbox: SandboxClient, tests: Problem) -> None:
    cheats = {name: f"{cheat}{WRONG}" for name, cheat in CHEATS.items()}
    refused = FinalStatus.WRONG_ANSWER, FinalStatus.RUNTIME_ERROR
    judged = await statuses(sandbox, tests, cheats)
    assert {name: status for name, status in judged.items() if status not in refused} == {}


@pytest.mark.parametrize("tests", [HUMANEVAL, MBPP], ids=["humaneval", "mbpp"])
async def test_what_is_right_passes(sandbox: SandboxClient, tests: Problem) -> None:
    right = "import sys\nsys.settrace(lambda *_: None)\ndef twice(x):\n    return 2 * x\n"
    assert await statuses(sandbox, tests, {"right": right}) == {"right": FinalStatus.SUCCESS}


# Instances of the answer's class are arguments, so the tests run in the answer's process.
SHARED = problem(
    ground_truth=json.dumps(
        {"test_list": ["assert twice(Number(2)) == 4", "assert twice(Number(3)) == 6"]}
    )
)
NUMBER = "class Number:\n    def __init__(self, n): self.n = n\n"
NOT_PREVENTED = {
    # Tests of equality ask the answer's own object whether it is equal.
    "equal to everything": """
        class Same:
            def __eq__(self, other): return True
        def twice(x): return Same()
        """,
    # What runs the tests is on the answer's stack.
    "frames": """
        import os, sys
        def twice(x):
            frame = sys._getframe()
            while 'token' not in frame.f_locals:
                frame = frame.f_back
            own = frame.f_locals
            own['write'](own['out'], f"\\n{own['token']} {[1] * len(own['tests'])}\\n".encode())
            own['leave'](0)
        """,
}


@pytest.mark.parametrize("name", NOT_PREVENTED)
async def test_what_is_known_to_pass_in_a_shared_process(sandbox: SandboxClient, name: str) -> None:
    """Not wanted, but known, and the verdict says so."""
    code = f"{NUMBER}{textwrap.dedent(NOT_PREVENTED[name])}"
    verdict = await verdict_of(make_task(sandbox, SHARED, fenced(code)))
    assert (verdict.accepted, verdict.shared_process) == (True, True)
    assert not (await verdict_of(make_task(sandbox, MBPP, fenced(code)))).accepted


async def test_arguments_are_the_answers_to_change(sandbox: SandboxClient) -> None:
    """Tests that compare a result with an argument accept that too: the same in any process."""
    tests = ["x = [3, 1]", "assert ordered(x) == sorted(x)"]
    given = problem(ground_truth=json.dumps({"test_list": tests}))
    verdict = await verdict_of(
        make_task(sandbox, given, fenced("def ordered(x): x.clear(); return x"))
    )
    assert (verdict.accepted, verdict.shared_process) == (True, False)
