"""The tool that runs public tests, with stand-ins for the classes of verl that it extends."""

import asyncio
import subprocess
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.clients.stand_in import Request, Server


class BaseTool:
    def __init__(self, config: dict[str, Any], tool_schema: object) -> None:
        pass


@pytest.fixture
def tool(server: Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    base, schemas = ModuleType("verl.tools.base_tool"), ModuleType("verl.tools.schemas")
    vars(base)["BaseTool"] = BaseTool
    vars(schemas).update(OpenAIFunctionToolSchema=object, ToolResponse=SimpleNamespace)
    packages = [ModuleType("verl"), ModuleType("verl.tools")]
    for module in (*packages, base, schemas):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    # Removed again after the test: it is not the module that real classes make.
    monkeypatch.delitem(sys.modules, "plumbline_reward.verl_public_tests", raising=False)
    from plumbline_reward.verl_public_tests import PublicTestsTool

    return PublicTestsTool({"url": server.url})


def test_nobody_waits_for_the_others_when_a_program_cannot_be_run(
    tool: Any, server: Server
) -> None:
    arrived, done = threading.Event(), threading.Event()

    def fault(request: Request) -> bool:
        if request.body["stdin"] == "refused":
            arrived.wait(60)
            request.json(422, {"error": "no such language"})
            return True
        arrived.set()
        done.wait(60)
        return False

    server.fault = fault
    tests = [{"input": text, "output": text} for text in ("waits", "refused")]

    async def execute() -> tuple[Any, float | None, dict[str, Any]]:
        instance, _ = await tool.create(create_kwargs={"public_tests": tests})
        result = await tool.execute(instance, {"code": "print(input())"})
        assert not done.is_set()
        done.set()
        return result

    response, share, metrics = asyncio.run(execute())
    assert "no such language" in response.text
    assert (share, metrics) == (None, {})


def run(request: Request) -> bool:
    """Run the program, in place of the service."""
    code, stdin = request.body["code"], request.body["stdin"]
    done = subprocess.run(
        [sys.executable, "-c", code], input=stdin, capture_output=True, text=True, check=False
    )
    status, figures = "error" if done.returncode else "ok", {"seconds": 0.1, "truncated": False}
    texts = {"stdout": done.stdout, "stderr": done.stderr}
    request.json(200, {"status": status, "exit_code": done.returncode, **figures, **texts})
    return True


@pytest.mark.parametrize(
    ("code", "passed", "said"),
    [
        ("def add(a, b): return a + b\nprint(3)", 2, ""),
        ("def add(a, b): return a - b\nprint(3)", 1, "AssertionError"),
        ("print(3)\nexit()", 1, "ended before the test"),
        ("def add(a, b): return a + b\nprint(4)", 1, "Test 2: wrong output"),
    ],
)
def test_rows_of_both_kinds(tool: Any, server: Server, code: str, passed: int, said: str) -> None:
    """Parquet files with tests of both kinds have all fields in each row."""
    server.fault = run
    assertion = {"assert": "assert add(1, 2) == 3", "input": None, "output": None}
    tests = [assertion, {"assert": None, "input": "1 2", "output": "3"}]

    async def execute() -> tuple[Any, float | None, dict[str, Any]]:
        instance, _ = await tool.create(create_kwargs={"public_tests": tests})
        return await tool.execute(instance, {"code": code})

    response, share, _ = asyncio.run(execute())
    assert (share, response.text[:1]) == (passed / 2, str(passed))
    assert said in response.text


def test_the_share_of_tests_that_passed(tool: Any) -> None:
    """The stand-in of the service runs ``cat``."""
    tests = [{"input": "1 3", "output": "1\n3 \n"}, {"input": "1", "output": "2"}]

    async def execute() -> tuple[Any, float | None, dict[str, Any]]:
        instance, _ = await tool.create(create_kwargs={"public_tests": tests})
        return await tool.execute(instance, {"code": "print(input())"})

    response, share, _ = asyncio.run(execute())
    assert response.text.startswith("1 of 2 public tests passed.\nTest 2: wrong output")
    assert share == 0.5
