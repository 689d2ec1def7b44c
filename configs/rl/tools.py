"""Function tools, for ``actor_rollout_ref.rollout.multi_turn.function_tool_path``."""

from plumbline_reward.verl_code_interpreter import code_interpreter

__all__ = ["code_interpreter"]
