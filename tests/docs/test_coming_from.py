"""The plan's rows of docs/coming-from.md: each command runs, each key exists."""

import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from shared.config import load_config
from tests.cli.commands import plumb
from tests.e2e import plumb as embedded

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/coming-from.md").read_text("utf-8")
PLAN = {
    "phase0.yaml": """
defaults: [_self_]
trainer: {n_gpus_per_node: 8, nnodes: 1, device: cuda}
actor_rollout_ref:
  model: {path: org/model, trust_remote_code: true, lora_rank: 0}
  rollout: {name: vllm, mode: async, tensor_model_parallel_size: 2, temperature: 0.0, top_p: 1.0,
    n: 1, prompt_length: 4096, response_length: 2048, load_format: auto, enforce_eager: true}
data: {train_files: [data/eval/humaneval.parquet], prompt_key: prompt,
  output_path: outputs/phase0/results.parquet}
ray_kwargs: {ray_init: {num_cpus: null, runtime_env: {env_vars: {NCCL_DEBUG: WARN}}}}
""",
    "generation.yaml": """
trainer: {nnodes: 1, n_gpus_per_node: 8, device: cuda}
data: {path: data/eval/humaneval.parquet, prompt_key: prompt, n_samples: 5,
  output_path: out.parquet, batch_size: 128}
model: {path: org/model, external_lib: null}
rollout: {name: vllm, mode: sync, temperature: 1.0, top_k: 50, top_p: 0.7, prompt_length: 1536,
  response_length: 512, dtype: bfloat16, load_format: dummy_dtensor, n: 1, do_sample: true}
""",
    "evaluation.yaml": """
data: {path: responses.parquet, prompt_key: prompt, response_key: responses,
  data_source_key: data_source, reward_model_key: reward_model}
custom_reward_function: {path: null, name: compute_score}
ray_init: {num_cpus: null, timeline_json_file: null}
""",
    "configs/data.yaml": """
datasets: {mbpp_reg: {layout: mbpp, ids: 11-210, source: {kind: local, path: mbpp.jsonl}}}
""",
}
MBPP = {
    "task_id": 11,
    "text": "Write a function that doubles a number.",
    "code": "def double(x):\n    return 2 * x",
    "test_list": ["assert double(2) == 4"],
    "test_setup_code": "",
    "challenge_test_list": [],
}


def rows(name: str) -> list[list[str]]:
    """What stands in backticks in the second column of a table."""
    table = re.search(rf"<!-- plan: {name} -->\n(.*?)<!-- /plan -->", TEXT, re.DOTALL)
    assert table
    cells = [line.split(" | ")[1] for line in table[1].splitlines()[2:]]
    return [re.findall(r"`([^`]+)`", cell) for cell in cells]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in PLAN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "mbpp.jsonl").write_text(json.dumps(MBPP))
    (tmp_path / "data/eval").mkdir(parents=True)
    names = ["prompt", "data_source", "ground_truth", "problem_id", "difficulty"]
    frame = pd.read_parquet(ROOT / "demo/data/humaneval.parquet")[names][:2]
    frame.to_parquet(tmp_path / "data/eval/humaneval.parquet")
    frame["reward_model"] = [{"style": "rule", "ground_truth": text} for text in frame.ground_truth]
    table = frame.drop(columns="ground_truth").assign(responses=[["```python\nx = 1\n```"]] * 2)
    table.to_parquet(tmp_path / "responses.parquet")
    return tmp_path


@pytest.mark.e2e
def test_each_command_runs(folder: Path) -> None:
    """verl's engine is not installed with these tests: commands that start it say so."""
    commands = [command for [command] in rows("commands")]
    assert len(commands) == 12
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "plumb"
        environment = {"PATH": embedded.environment()["PATH"]}
        done = plumb(*arguments, folder=folder, **environment)
        assert "Traceback" not in done.stderr
        if "vllm" in command or "generation.backend=verl" in command:
            assert (done.code, "verl is not installed here" in done.line) == (2, True), done
        elif "accept" in command:
            assert done.code in (1, 4), done
            assert "metrics" in done.stdout
        else:
            assert done.code == 0, (command, done)
    assert (folder / "data_manifests/audit_report.md").exists()
    assert (folder / "outputs/phase0/phase0_summary.json").exists()


def test_each_setting_is_a_key() -> None:
    keys = [text for row in rows("settings") for text in row if "=" in text]
    assert len(keys) == 10
    config = load_config(None, keys)
    assert (config.output.cases, config.wandb.project) == ("all", "rlvr_coding_model")
