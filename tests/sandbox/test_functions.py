"""Function tests by ``POST /run_cases``: one call, in two children of the slot's init."""

import base64
from typing import Any

from services.sandbox.isolation import Identity
from shared.harness.wire import FunctionTests
from tests.sandbox.conftest import Sandbox
from tests.sandbox.test_channels import run_cases

LIMITS: dict[str, Any] = {
    "cpu": 2, "wall": 4, "compile": 30, "budget": 60, "memory": 1 << 30, "output": 1000,
    "processes": 8,
}  # fmt: skip
SPIN = "def f(x):\n    while True: pass"
MANY = (
    "import os, time\ndef f(x):\n    made = 0\n    try:\n        while made < 100:\n"
    "            if os.fork() == 0: time.sleep(60)\n            made += 1\n"
    "    except OSError: pass\n    return made"
)
BURNT = (
    "import os\ndef f(x):\n    if os.fork() == 0:\n        while True: pass\n"
    "    os.wait()\n    return x"
)
WRITES = "def f(x):\n    with open('a', 'w') as file: file.write('a' * 5000)"
# Answer, limits, then expected: how it compiled, codes and end, limit, exit code (None: any).
Row = tuple[str, dict[str, Any], str, str, str | None, int | None]
ROWS: list[Row] = [
    ("def f(x): return x", {}, "ok", "1\n0\ndone", None, 0),
    ("def f(x): return 3 - x", {}, "ok", "0\n1\ndone", None, 0),
    ("def f(x: return x", {}, "error", "", None, None),
    ("def f(x): return x", {"compile": 0}, "timeout", "", None, None),
    (SPIN, {"cpu": 0.3}, "ok", "", "cpu", -9),
    (BURNT, {"cpu": 0.3}, "ok", "", "cpu", -9),
    ("import time\ndef f(x): time.sleep(60)", {"wall": 0.3}, "ok", "", "wall", -9),
    ("def f(x): return len(bytearray(2 << 30))", {}, "ok", "-2\n-2\ndone", None, 0),
    (WRITES, {}, "ok", "-2\n-2\ndone", None, 0),
    ("import os\ndef f(x): os._exit(7)", {}, "ok", "-2\n-2\nlost", None, 7),
    ("import os\ndef f(x): os.kill(0, 9)", {}, "ok", "-2\n-2\nlost", None, -9),
]  # fmt: skip


async def run(sandbox: Sandbox, code: str, *tests: str, **limits: Any) -> dict[str, Any]:
    payload = FunctionTests("", "", tests, ["f"]).payload
    status, result = await run_cases(sandbox, code, [payload], "functions", **(LIMITS | limits))
    assert status == 200, result
    return dict(result)


def codes(result: dict[str, Any]) -> str:
    cases = result["cases"].values()
    return "".join(base64.b64decode(case["stdout"]).decode() for case in cases)


async def test_ends_and_limits_in_every_isolation(every_isolation: Sandbox):
    failures = {}
    for code, limits, compiled, report, limit, status in ROWS:
        result = await run(every_isolation, code, "assert f(1) == 1", "assert f(2) == 1", **limits)
        case = result["cases"].get("0", {})
        found = result["compiled"], codes(result), case.get("limit")
        exit_code = case.get("exit_code") if status is not None else None
        if (*found, exit_code) != (compiled, report, limit, status):
            failures[code, *limits] = result
        assert result["end"] == ("done" if compiled == "ok" else "compile"), code
    assert not failures


async def test_processes_in_every_isolation(every_isolation: Sandbox):
    ready = await every_isolation.ready()
    result = await run(every_isolation, MANY, "assert 1 <= f(1) <= 8")
    if ready["identity"] != Identity.SERVER:  # the limit would count the processes of the server
        assert codes(result) == "1\ndone", result
    assert codes(await run(every_isolation, "def f(x): return x", "assert f(1)")) == "1\ndone"


async def test_an_answer_is_a_child_of_the_init(namespaced: Sandbox):
    """Nothing of the harness is between them, and the tests are a child beside it."""
    code = "import os\ndef f(x): return os.getppid(), len([n for n in os.listdir('/proc')" + (
        " if n.isdigit()])"
    )
    result = await run(namespaced, code, "assert f(1)[0] == 1", "assert f(1)[1] <= 4, f(1)")
    assert codes(result) == "1\n1\ndone", result


async def test_an_answer_has_its_own_descriptors_alone(every_isolation: Sandbox):
    code = "import os\ndef f(x): return sorted(map(int, os.listdir('/proc/self/fd')))"
    # The last one is that of the folder itself.
    result = await run(every_isolation, code, "assert f(1) == [0, 1, 2, 3, 4, 5]")
    assert codes(result) == "1\ndone", result


async def test_tests_that_use_numpy_find_it_loaded(sandbox: Sandbox):
    """The answer neither pays for it nor has it where they do not use it."""
    code = "import sys\ndef f(x): return 'numpy' in sys.modules, len(bytearray(950 << 20))"
    used = "import numpy\nassert f(1)[0] and numpy.allclose(f(1)[1], 950 << 20)"
    assert codes(await run(sandbox, code, used, wall=60, cpu=60)) == "1\ndone"
    assert codes(await run(sandbox, code, "assert not f(1)[0]", wall=60, cpu=60)) == "1\ndone"
