"""Run by verl's interpreter: its tools with this client; prints JSON.

Arguments: the address of a service, a folder for files.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import plumbline_reward
from verl.tools.tool_registry import load_all_tools

os.environ["PLUMBLINE_REWARD_URL"], folder = sys.argv[1:]


async def tools() -> dict[str, object]:
    configuration = Path(folder) / "tools.yaml"
    configuration.write_text(
        "tools:\n  - class_name: plumbline_reward.verl_public_tests.PublicTestsTool\n"
        "    config: {type: native}\n"
    )
    file = Path(plumbline_reward.__file__).with_name("verl_code_interpreter.py")
    tests, interpreter = load_all_tools(str(configuration), str(file))
    cases = [{"input": "a", "output": "a\n"}, {"input": "b", "output": "c"}]
    instance, _ = await tests.create(create_kwargs={"public_tests": cases})
    response, share, _ = await tests.execute(instance, {"code": "x"}, agent_data=None)
    await tests.release(instance)
    return {
        "names": [tests.name, interpreter.name],
        "interpreter": await interpreter.call({"code": "x", "stdin": "echo"}),
        "tests": response.text,
        "share": share,
    }


print("\n" + json.dumps(asyncio.run(tools())))
