"""The tool that runs public tests, with stand-ins for the classes of verl that it extends."""

import asyncio
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


def test_the_share_of_tests_that_passed(tool: Any) -> None:
    """The stand-in of the service runs ``cat``."""
    tests = [{"input": "1", "output": "1 \n"}, {"input": "1", "output": "2"}]

    async def execute() -> tuple[Any, float | None, dict[str, Any]]:
        instance, _ = await tool.create(create_kwargs={"public_tests": tests})
        return await tool.execute(instance, {"code": "print(input())"})

    response, share, _ = asyncio.run(execute())
    assert response.text.startswith("1 of 2 public tests passed.\nTest 2: wrong output")
    assert share == 0.5
