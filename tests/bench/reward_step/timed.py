"""verl's own reward manager and rollout, with a log of when each generation and reward ended.

verl has no ``timing_s/reward``: it scores a completion as soon as its own generation ends, inside
the rollout. Both classes are loaded by verl, in its environment; see :mod:`.trainer`.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

LOG = "PLUMBLINE_BENCH_REWARD_LOG"


class TimedAgentLoop(SingleTurnAgentLoop):
    """verl's single-turn rollout, which tells the reward when it ended."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        output = await super().run(sampling_params, **kwargs)
        # One clock for all processes of the machine.
        output.extra_fields["bench_step"] = int(kwargs["global_steps"])
        output.extra_fields["bench_generated"] = time.monotonic()
        return output


class TimedRewardManager(NaiveRewardManager):
    """verl's default reward manager with one JSON line per reward in the file ``LOG`` names."""

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        told = data[-1:][0].non_tensor_batch["tool_extra_fields"]
        line = {"step": told["bench_step"], "generated": told["bench_generated"]}
        line["begin"] = time.monotonic()
        try:
            result = await super().run_single(data)
        except Exception as error:
            _write({**line, "end": time.monotonic(), "error": repr(error)})
            raise
        extra = result["reward_extra_info"]
        score = {"score": float(result["reward_score"]), "cached": float(extra.get("cached", 0))}
        _write({**line, "end": time.monotonic(), **score})
        return result


def _write(line: dict[str, Any]) -> None:
    # Appended by one short write each, so lines of several processes do not mix.
    with Path(os.environ[LOG]).open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")
