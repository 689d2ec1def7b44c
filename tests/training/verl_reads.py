"""Read exported files as verl does; runs in verl's environment: verl_reads.py MODEL FILE FILE.

Prints a JSON line with what the data loader would give the agent loops.
"""

import json
import sys

from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
config = OmegaConf.create(
    {
        "prompt_key": "prompt",
        "max_prompt_length": 4096,
        "filter_overlong_prompts": True,
        "filter_overlong_prompts_workers": 1,
        "return_raw_chat": True,
    }
)
dataset = RLHFDataset(sys.argv[2:], tokenizer, config)
batch = collate_fn([dataset[index] for index in range(len(dataset))])
first = {name: batch[name][0] for name in ("raw_prompt", "data_source", "reward_model")}
seen = {"rows": len(dataset), "index": int(batch["index"][-1]), **first}
seen["extra_info"] = batch["extra_info"][0]
seen["tools_kwargs"] = batch["tools_kwargs"][0]
seen["agent_name"] = batch["agent_name"][0]
print(json.dumps(seen, default=list))
