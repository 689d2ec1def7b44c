"""``POST /run_cases``: an answer on many inputs in one call."""

import base64
import json
import math
from typing import Any

import pytest

from shared.harness.wire import RUN_CASES_VERSION
from tests.sandbox.conftest import Sandbox, needs_cpp
from tests.sandbox.test_channels import run_cases

LIMITS: dict[str, Any] = {
    "cpu": 5, "wall": 10, "compile": 30, "budget": 60, "memory": 1 << 30, "output": 1 << 20,
}  # fmt: skip


def request(**changes: Any) -> dict[str, Any]:
    return {"code": "print(input())", "inputs": ["a"], "limits": LIMITS} | changes


async def send(sandbox: Sandbox, body: object) -> tuple[int, Any]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await sandbox.send("POST", "/run_cases", text)


def printed(result: Any) -> list[bytes]:
    cases = result["cases"]
    return [base64.b64decode(cases[index]["stdout"]) for index in sorted(cases, key=int)]


async def test_it_is_announced(sandbox: Sandbox):
    async with sandbox.session.head(f"{sandbox.url}/run_cases") as answer:
        assert answer.status == 200
        assert answer.headers["Plumbline-Run-Cases"] == RUN_CASES_VERSION


async def test_cases_in_every_isolation(every_isolation: Sandbox):
    code = "import sys\nprint(input()[::-1]); print('e', file=sys.stderr)\nsys.exit(3)"
    status, result = await run_cases(every_isolation, code, ["abc", "xyz"])
    assert (status, result["compiled"], result["end"]) == (200, "ok", "done")
    assert printed(result) == [b"cba\n", b"zyx\n"]
    case = result["cases"]["0"]
    assert (case["exit_code"], case["limit"], case["stderr"]) == (3, None, "e\n")
    assert result["seconds"] > 0
    assert case["wall"] > 0


@needs_cpp
async def test_cpp_in_every_isolation(every_isolation: Sandbox):
    code = "#include <iostream>\nint main(){int n;std::cin>>n;std::cout<<n*n;return 4;}"
    _, result = await run_cases(every_isolation, code, ["3", "12"], "cpp")
    assert (result["compiled"], result["end"], printed(result)) == ("ok", "done", [b"9", b"144"])
    _, result = await run_cases(every_isolation, "int main(){return x;}", ["3"], "cpp")
    assert (result["compiled"], result["end"], result["cases"]) == ("error", "compile", {})
    assert "‘x’" in result["compile_output"] or "'x'" in result["compile_output"]


@needs_cpp
async def test_cpp_cannot_change_attributes_outside(every_isolation: Sandbox):
    """Only the compiler may, in an isolation that shares the file system."""
    code = (
        "#include <sys/stat.h>\n#include <stdio.h>\n"
        'int main(){int r=chmod("..", 0777);struct stat s;stat("..",&s);'
        'printf("%d", s.st_mode & 0777 & ~0700);}'
    )
    ready = await every_isolation.ready()
    _, result = await run_cases(every_isolation, code, [""], "cpp")
    if ready["isolation"] == "landlock":
        assert printed(result) == [b"0"]
    # The server notices what it cannot prevent.
    _, result = await run_cases(every_isolation, code, [""], "cpp")
    assert result["end"] == "done"


async def test_inputs_are_passed_as_they_are(sandbox: Sandbox):
    code = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data)"
    inputs = ["", "\n", "é\r\n\0", "1 2\n3", "x" * 200_000]
    _, result = await run_cases(sandbox, code, inputs)
    assert printed(result) == [text.encode() for text in inputs]


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.nightly)])
async def test_many_inputs(sandbox: Sandbox, count: int):
    inputs = [str(number) for number in range(count)]
    limits = {"budget": 600}
    _, result = await run_cases(sandbox, "print(input())", inputs, **limits)
    assert result["end"] == "done"
    assert b"".join(printed(result)).split() == [text.encode() for text in inputs]


async def test_timeouts_of_cases(every_isolation: Sandbox):
    code = (
        "n = int(input())\nif n == 1:\n    while True: pass\nimport time\ntime.sleep(n)\nprint(n)"
    )
    _, result = await run_cases(every_isolation, code, ["0", "1", "60", "0"], cpu=0.5, wall=1)
    limits = [case["limit"] for case in result["cases"].values()]
    assert limits == [None, "cpu", "wall", None]
    assert result["end"] == "done"


async def test_the_last_of_the_timeouts_ends_the_call(sandbox: Sandbox):
    _, result = await run_cases(sandbox, "while True: pass", [""] * 5, cpu=0.5, timeouts=2)
    assert (result["end"], len(result["cases"])) == ("timeouts", 2)


async def test_the_budget_ends_the_call(sandbox: Sandbox):
    code = "import time; time.sleep(0.5)"
    _, result = await run_cases(sandbox, code, [""] * 20, budget=0.7)
    assert result["end"] == "budget"
    assert 1 <= len(result["cases"]) < 20


INVALID: list[tuple[object, str]] = [
    (request(code=None), "code"),
    (request(language="bash"), "language"),
    (request(inputs=[""] * 100_001), "inputs"),
    (request(limits=LIMITS | {"cpu": -1}), "cpu"),
    (request(limits=LIMITS | {"cpu": math.nan}), "cpu"),
    (request(code="\ud800"), "code"),
    (request(language="functions", inputs=[]), "body"),
    (request(language="functions", inputs=["no JSON"]), "body"),
    (request(language="functions", inputs=["1\n[]"]), "body"),
    (b"{", "body"),
]


async def test_invalid_requests(sandbox: Sandbox):
    failures = []
    for body, field in INVALID:
        status, answer = await send(sandbox, body)
        if status != 422 or not any(field in error["loc"] for error in answer["detail"]):
            failures.append((str(body)[:200], field, status, answer))
    assert not failures, failures
    status, result = await run_cases(sandbox, "print(1)", [""])
    assert (status, printed(result)) == (200, [b"1\n"])


async def test_limits_of_zero(sandbox: Sandbox):
    """Zero is no memory limit, and no time and no output at all."""
    _, result = await run_cases(sandbox, "print(1)", ["", ""], memory=0)
    assert printed(result) == [b"1\n"] * 2
    _, result = await run_cases(sandbox, "print(1)", ["", ""], budget=0)
    assert len(result["cases"]) == 1
    _, result = await run_cases(sandbox, "print(1)", [""], output=0)
    assert result["cases"]["0"]["limit"] == "output"
    _, result = await run_cases(sandbox, "import time; time.sleep(9)", [""], wall=0)
    assert result["cases"]["0"]["limit"] in ("wall", "cpu")
