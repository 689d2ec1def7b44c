"""verl's reward managers on recorded responses (``verl_rewards MODEL PARQUET RAY_FOLDER OUT``).

PARQUET has the columns of a training set and ``responses``. OUT gets, as JSON, what
``load_reward_manager`` and ``RewardLoopManager`` made of the first response of each row, and what
verl says of a row whose reference names another version of its problem.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import ray
import torch
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl import DataProto
from verl.experimental.reward_loop import RewardLoopManager
from verl.trainer.ppo.reward import load_reward_manager

from tests.training.programs.verl_config import configured, start_ray


def main(model: str, parquet: str, ray_folder: str, out: str) -> None:
    config = configured(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = pd.read_parquet(parquet).to_dict("records")
    start_ray(Path(ray_folder))

    async def alone() -> list[dict[str, Any]]:
        manager = load_reward_manager(config, tokenizer)
        return [await manager.run_single(_batch(tokenizer, [row])) for row in rows[:3]]

    loop = RewardLoopManager(config)
    together = loop.compute_rm_score(_batch(tokenizer, rows))
    rewards = {
        "alone": asyncio.run(alone()),
        "scores": together.batch["rm_scores"].sum(dim=-1).tolist(),
        "keys": together.meta_info["reward_extra_keys"],
        "acc": together.non_tensor_batch["acc"].tolist(),
        "refused": _refusal(loop, _batch(tokenizer, [_changed(rows[0]), *rows[1:2]])),
    }
    Path(out).write_text(json.dumps(rewards))
    ray.shutdown()


def _refusal(loop: RewardLoopManager, data: DataProto) -> str:
    try:
        loop.compute_rm_score(data)
    except ray.exceptions.RayTaskError as error:
        return str(error)
    return ""


def _changed(row: dict[str, Any]) -> dict[str, Any]:
    reference, _, digest = row["reward_model"]["ground_truth"].rpartition("#")
    other = f"{reference}#{digest[::-1]}"
    return {**row, "reward_model": {**row["reward_model"], "ground_truth": other}}


def _batch(tokenizer: Any, rows: Sequence[dict[str, Any]]) -> DataProto:
    """What the rollout hands to a reward manager; responses are padded on the right."""
    responses = [
        torch.tensor(
            tokenizer.encode(row["responses"][0], add_special_tokens=False), dtype=torch.long
        )
        for row in rows
    ]
    padded = torch.nn.utils.rnn.pad_sequence(responses, batch_first=True, padding_value=0)
    mask = torch.zeros_like(padded)
    for row, response in enumerate(responses):
        mask[row, : len(response)] = 1
    prompts = torch.ones((len(rows), 1), dtype=torch.long)
    tensors = {
        "prompts": prompts,
        "responses": padded,
        "attention_mask": torch.cat([prompts, mask], dim=1),
    }
    columns = {
        name: np.array([row[name] for row in rows], dtype=object)
        for name in ("data_source", "reward_model", "extra_info")
    }
    return DataProto(TensorDict(tensors, batch_size=len(rows)), columns)


if __name__ == "__main__":
    main(*sys.argv[1:])
