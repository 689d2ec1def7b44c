"""verl: a tool that runs the model's program on the public tests of its problem.

In the file of ``actor_rollout_ref.rollout.multi_turn.tool_config_path``::

    tools:
      - class_name: plumbline_reward.verl_public_tests.PublicTestsTool
        config: {type: native}  # and url, token, timeout of the client, if not in the environment

Each row of the data has its tests in ``extra_info.tools_kwargs``::

    {"run_public_tests": {"create_kwargs": {"public_tests": [{"input": "1 2", "output": "3"}]}}}

A test may be ``{"assert": "assert add(1, 2) == 3"}`` instead, which runs behind the program.
"""

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

from plumbline_reward.client import Client
from plumbline_reward.errors import RewardError
from plumbline_reward.responses import describe, describe_failure, shorten

_SHOWN = 400
_SCHEMA = {
    "type": "function",
    "function": {
        "name": "run_public_tests",
        "description": "Run a program on the problem's public tests and tell which fail.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The complete program."}},
            "required": ["code"],
        },
    },
}


class PublicTestsTool(BaseTool):
    """The tool ``run_public_tests(code)``."""

    def __init__(
        self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None
    ) -> None:
        super().__init__(config, tool_schema)
        names = {"url", "token", "timeout"} & set(config)
        self._client = Client(**{name: config[name] for name in names})
        self._tests: dict[str, list[Mapping[str, object]]] = {}

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema:
        return OpenAIFunctionToolSchema.model_validate(_SCHEMA)

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        """Take the problem's tests from ``create_kwargs["public_tests"]``."""
        instance_id = instance_id or str(uuid4())
        tests = (kwargs.get("create_kwargs") or {}).get("public_tests")
        self._tests[instance_id] = [] if tests is None else list(tests)
        return instance_id, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, object], **_: Any
    ) -> tuple[ToolResponse, float | None, dict[str, object]]:
        """Run ``parameters["code"]`` on all tests at the same time.

        Returns:
            The text for the model; the share of tests that passed, None if they could not be run;
            the numbers of tests that passed and in all.
        """
        code, tests = parameters.get("code"), self._tests[instance_id]
        if not isinstance(code, str):
            return ToolResponse(text="The argument code is missing or not a text."), None, {}
        if not tests:
            return ToolResponse(text="This problem has no public tests."), None, {}
        running = [asyncio.ensure_future(self._failure(code, test)) for test in tests]
        try:
            failures = await asyncio.gather(*running)
        except RewardError as error:
            return ToolResponse(text=describe_failure(error)), None, {}
        finally:
            for task in running:  # if one program cannot be run, nobody waits for the others
                task.cancel()
        passed, total = failures.count(None), len(failures)
        text = f"{passed} of {total} public tests passed."
        for number, failure in enumerate(failures, start=1):
            if failure is not None:
                text += f"\nTest {number}: {failure}"
        metrics: dict[str, object] = {"public_tests_passed": passed, "public_tests_total": total}
        return ToolResponse(text=text), passed / total, metrics

    async def release(self, instance_id: str, **_: Any) -> None:
        self._tests.pop(instance_id, None)

    async def _failure(self, code: str, test: Mapping[str, object]) -> str | None:
        """Run one test and describe its failure, None if it passes."""
        if test.get("assert") is not None:  # Arrow completes rows of both kinds to the same fields
            passed = 100 + secrets.randbelow(100)
            ending = f"import os\nos._exit({passed})\n"
            result = await self._client.run_async(f"{code}\n\n{test['assert']}\n{ending}")
            if result.exit_code == passed:
                return None
            early = "The program ended before the test.\n" if result.status == "ok" else ""
            return f"{test['assert']}\n{early}{describe(result)}"
        stdin, expected = str(test["input"]), str(test["output"])
        result = await self._client.run_async(code, stdin=stdin)
        shown = f"input:\n{shorten(stdin, _SHOWN)}\n"
        if result.status != "ok":
            return shown + describe(result)
        if result.stdout.split() == expected.split():  # as the judge compares by default
            return None
        return (
            f"wrong output.\n{shown}expected:\n{shorten(expected, _SHOWN)}\n"
            f"printed:\n{shorten(result.stdout, _SHOWN)}"
        )
