"""Rollouts with a tool, each rewarded (``verl_rollouts MODEL PARQUET RAY_FOLDER OUT``).

Everything is verl's: an engine on the CPU, the agent loop, the reward loop. OUT gets the response,
the score and the number of turns of every trajectory as JSON.
"""

import asyncio
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import ray
from omegaconf import DictConfig
from torch.utils.data import DataLoader
from transformers import AutoTokenizer
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopManager
from verl.experimental.reward_loop import RewardLoopManager
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.workers.rollout.llm_server import LLMServerManager

from tests.training.programs.verl_config import configured, start_ray


def main(model: str, parquet: str, ray_folder: str, out: str) -> None:
    config = configured(model, *_overrides(parquet))
    tokenizer = AutoTokenizer.from_pretrained(model)
    start_ray(Path(ray_folder))
    prompts = _prompts(config, tokenizer, parquet)
    output = asyncio.run(_generate(config, prompts))
    rows = [
        {
            "response": tokenizer.decode(tokens[mask.bool()]),
            "text": tokenizer.decode(tokens[mask.bool()], skip_special_tokens=True),
            "score": scores.sum().item(),
            "turns": int(turns),
            "reference": data["ground_truth"],
        }
        for tokens, mask, scores, turns, data in zip(
            output.batch["responses"],
            output.batch["attention_mask"][:, -output.batch["responses"].shape[1] :],
            output.batch["rm_scores"],
            output.non_tensor_batch["__num_turns__"],
            prompts.non_tensor_batch["reward_model"],
            strict=True,
        )
    ]
    Path(out).write_text(json.dumps({"rows": rows, "keys": output.meta_info["reward_extra_keys"]}))
    ray.shutdown()


def _overrides(parquet: str) -> list[str]:
    rollout = "actor_rollout_ref.rollout"
    return [
        f"data.train_files={parquet}",
        "data.max_prompt_length=640",
        "data.max_response_length=512",
        f"{rollout}.name=vllm",
        f"{rollout}.n=2",
        f"{rollout}.nnodes=1",
        f"{rollout}.n_gpus_per_node=1",
        f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.load_format=auto",
        f"{rollout}.enforce_eager=true",
        f"{rollout}.max_num_seqs=32",
        f"{rollout}.max_num_batched_tokens=2048",
        f"+{rollout}.engine_kwargs.vllm.enable_sleep_mode=false",
        f"+{rollout}.engine_kwargs.vllm.kv_cache_memory_bytes={64 << 20}",
        f"{rollout}.agent.num_workers=1",
        f"{rollout}.agent.default_agent_loop=tool_agent",
        f"{rollout}.multi_turn.enable=true",
        f"{rollout}.multi_turn.function_tool_path={_path_of_tool()}",
        f"{rollout}.multi_turn.max_tool_response_length=4096",
    ]


def _path_of_tool() -> str:
    # Not imported here: verl loads it by its path, and a tool cannot be registered twice.
    spec = find_spec("plumbline_reward.verl_code_interpreter")
    assert spec and spec.origin
    return spec.origin


def _prompts(config: DictConfig, tokenizer: AutoTokenizer, parquet: str) -> DataProto:
    dataset = RLHFDataset(parquet, tokenizer, config.data)
    (items,) = DataLoader(dataset, batch_size=len(dataset), collate_fn=collate_fn)
    prompts = DataProto.from_single_dict(items)
    repeated = prompts.repeat(config.actor_rollout_ref.rollout.n, interleave=True)
    repeated.non_tensor_batch.setdefault("index", np.arange(len(repeated)))
    return repeated


async def _generate(config: DictConfig, prompts: DataProto) -> DataProto:
    servers = await LLMServerManager.create(config)
    rewards = RewardLoopManager(config)
    loops = await AgentLoopManager.create(
        config,
        llm_client=servers.get_client(),
        reward_loop_worker_handles=rewards.reward_loop_worker_handles,
    )
    return await loops.generate_sequences(prompts)


if __name__ == "__main__":
    main(*sys.argv[1:])
