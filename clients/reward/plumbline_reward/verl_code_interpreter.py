"""verl: a code interpreter for the model, run in Plumbline's sandbox.

``actor_rollout_ref.rollout.multi_turn.function_tool_path`` wants the path of this file. Settings
come from the environment.
"""

from verl.tools.function_tool import function_tool

from plumbline_reward.client import Client
from plumbline_reward.errors import RewardError
from plumbline_reward.responses import describe, describe_failure


@function_tool
async def code_interpreter(code: str, stdin: str = "") -> str:
    """Run a Python program and return what it prints.

    Args:
        code: The complete program.
        stdin: What the program reads from its standard input.
    """
    try:
        return describe(await Client().run_async(code, stdin=stdin))
    except RewardError as error:
        return describe_failure(error)
