"""Run by verl's interpreter: its reward manager and its tools with this client; prints JSON.

Arguments: the address of a service, a model's folder for its tokenizer, a folder for files.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import numpy
import plumbline_reward
import torch
import verl
from hydra import compose, initialize_config_dir
from transformers import AutoTokenizer
from verl import DataProto
from verl.tools.tool_registry import load_all_tools
from verl.trainer.ppo.reward import load_reward_manager

os.environ["PLUMBLINE_REWARD_URL"], model, folder = sys.argv[1:]


async def reward() -> dict[str, object]:
    options = "+reward.custom_reward_function.reward_kwargs"
    path = str(Path(verl.__file__).parent / "trainer" / "config")
    with initialize_config_dir(path, version_base=None):
        config = compose(
            "ppo_trainer",
            overrides=[
                "reward.custom_reward_function.path=pkg://plumbline_reward",
                f"{options}.score=accepted",
            ],
        )
    tokenizer = AutoTokenizer.from_pretrained(model)
    manager = load_reward_manager(config, tokenizer)
    manager.loop = asyncio.get_running_loop()
    response = tokenizer("pass 0.5", return_tensors="pt")["input_ids"]
    row = {
        "data_source": "demo",
        "reward_model": {"ground_truth": "plumbline:demo/add#0123456789abcdef"},
        "extra_info": {"split": "validation"},
    }
    data = DataProto.from_dict(
        tensors={"responses": response, "attention_mask": torch.ones_like(response)},
        non_tensors={key: numpy.array([value], dtype=object) for key, value in row.items()},
    )
    return await manager.run_single(data)


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


print("\n" + json.dumps({"reward": asyncio.run(reward()), "tools": asyncio.run(tools())}))
