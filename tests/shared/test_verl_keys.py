"""verl's configuration keys: every one has a place, and a configuration of verl's loads."""

import json
from pathlib import Path

import pytest

from shared.config import Config, load_config
from shared.config_files import validate_document
from shared.protocol import leaves
from shared.verl_keys import MAPPED, RECORDED, REFUSED, SECTIONS, canonical, notices
from tests.shared.test_config import refusal

KNOWN = Path(__file__).with_suffix("").with_name("verl_keys.txt").read_text().splitlines()[1:]
LEAVES = {leaf.path for leaf in leaves(Config)}
TABLES = {*SECTIONS, *MAPPED, *RECORDED, *REFUSED, *LEAVES}
ROLLOUT = "actor_rollout_ref.rollout"

GUIDE = """
defaults: [_self_]
trainer: {n_gpus_per_node: 8, nnodes: 1, device: cuda}
actor_rollout_ref:
  model: {path: org/model-7b, trust_remote_code: true}
  rollout: {name: vllm, mode: async, tensor_model_parallel_size: 2, temperature: 0.0}
data: {train_files: [a.parquet, b.parquet], prompt_key: question, output_path: out/results.parquet}
ray_kwargs:
  ray_init: {num_cpus: null, runtime_env: {env_vars: {NCCL_DEBUG: WARN, VLLM_USE_V1: "1"}}}
"""
GENERATION = """
trainer: {nnodes: 1, n_gpus_per_node: 8, device: cuda}
data: {path: ~/data/set.parquet, n_samples: 5, output_path: out.parquet, batch_size: 128}
model: {path: ~/models/m, external_lib: null}
rollout:
  {name: vllm, mode: sync, temperature: 1.0, top_k: 50, top_p: 0.7, n: 1, ignore_eos: false,
   free_cache_engine: true, load_format: dummy_dtensor, calculate_log_probs: false,
   log_prob_micro_batch_size_per_gpu: 8}
actor: {strategy: fsdp}
ray_init: {num_cpus: null, timeline_json_file: null}
"""
EVALUATION = """
data:
  {path: out.parquet, prompt_key: prompt, response_key: responses, data_source_key: data_source,
   reward_model_key: reward_model}
custom_reward_function: {path: null, name: compute_score}
ray_kwargs: {ray_init: {num_cpus: null}, timeline_json_file: null}
"""


def is_known(key: str) -> bool:
    """Whether a key has a place: as one of ours, in a table, or below one of them."""
    name = canonical(key)
    above = [name[:end] for end, letter in enumerate(f"{name}.") if letter == "."]
    return name.endswith("_target_") or not TABLES.isdisjoint(above)


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


# The table


def test_every_key_of_verl_has_a_place() -> None:
    assert len(KNOWN) > 400
    assert [key for key in KNOWN if not is_known(key)] == []


# Whole files


def test_the_guides_configuration(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, GUIDE))
    rollout = config.actor_rollout_ref.rollout
    assert config.data.eval_files == ["a.parquet", "b.parquet"]
    assert (config.data.prompt_key, config.data.output_path) == ("question", "out/results.parquet")
    assert (rollout.tensor_model_parallel_size, config.trainer.n_gpus_per_node) == (2, 8)
    assert config.generation.verl.env_vars == {"NCCL_DEBUG": "WARN", "VLLM_USE_V1": "1"}
    assert config.run.verl_keys["data.train_files"] == ["a.parquet", "b.parquet"]
    assert notices(config.run.verl_keys) == [
        "config: data.train_files is read as data.eval_files, "
        "ray_kwargs.ray_init.runtime_env.env_vars is read as generation.verl.env_vars"
    ]


def test_verls_older_generation_yaml(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, GENERATION), ["rollout.load_format=auto"])
    rollout = config.actor_rollout_ref.rollout
    assert config.data.eval_files == ["~/data/set.parquet"]
    assert config.actor_rollout_ref.model.path == "~/models/m"
    assert (rollout.n, rollout.temperature, rollout.top_k, rollout.top_p) == (5, 1.0, 50, 0.7)
    assert rollout.load_format == "auto"
    assert notices(config.run.verl_keys) == [
        "config: data.path is read as data.eval_files, data.n_samples is read as "
        "actor_rollout_ref.rollout.n, model is read as actor_rollout_ref.model, rollout is read as "
        "actor_rollout_ref.rollout",
        "config: data.batch_size, rollout.free_cache_engine, "
        "rollout.log_prob_micro_batch_size_per_gpu, actor: no effect here; a run does not use it",
    ]


def test_verls_evaluation_yaml(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, EVALUATION))
    assert config.data.completions == "out.parquet"
    assert config.data.eval_files == []
    assert config.run.verl_keys["data.response_key"] == "responses"
    assert notices(config.run.verl_keys) == ["config: data.path is read as data.completions"]


def test_a_trainers_whole_configuration(tmp_path: Path) -> None:
    """Sections of training are named in one line, and their mandatory values may be missing."""
    text = """
actor_rollout_ref:
  actor: {optim: {lr: 1e-6}, strategy: fsdp}
  rollout: {load_format: auto, response_length: 100, prompt_length: "${data.max_prompt_length}"}
  model: {_target_: verl.workers.config.HFModelConfig, path: m}
critic: {strategy: fsdp, ppo_epochs: 1}
data: {train_files: a.parquet, val_files: b, max_prompt_length: 200, max_response_length: 7}
reward:
  num_workers: 8
  reward_model: {rollout: {name: "???"}}
  sandbox_fusion: {url: "http://s:1", memory_limit_mb: 512}
"""
    config = load_config(written(tmp_path, text))
    rollout = config.actor_rollout_ref.rollout
    assert config.data.eval_files == ["a.parquet"]
    # The rollout's own length counts, as in verl.
    assert (rollout.prompt_length, rollout.response_length) == (200, 100)
    assert (config.sandbox.url, config.sandbox.memory_limit_mb) == ("http://s:1", 512)
    lines = notices(config.run.verl_keys)
    assert sum("actor_rollout_ref.actor, critic" in line for line in lines) == 1
    assert any(line.startswith("config: reward: no effect here") for line in lines)
    assert any("data.val_files" in line for line in lines)


def test_the_record_of_a_run_is_read_as_it_is(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, GENERATION), ["rollout.load_format=auto"])
    document = config.model_dump(mode="json")
    assert validate_document(Config, document) == config
    copied = tmp_path / "resolved.yaml"
    copied.write_text(json.dumps(document))
    assert load_config(copied) == config


# Single keys


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (f"{ROLLOUT}.ignore_eos=true", "answers would go on after their end"),
        ("actor_rollout_ref.model.tokenizer_path=/t", "put them there"),
        ("actor_rollout_ref.model.lora_adapter_path=/a", "merge it into the weights"),
        ("custom_reward_function.path=mine.py", "judge.method"),
    ],
)
def test_what_would_measure_something_else_is_refused(override: str, said: str) -> None:
    message = refusal(None, override)
    key, _, _ = override.partition("=")
    assert message.startswith(f"{key}=")
    assert said in message


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (f"{ROLLOUT}.calculate_log_probs=true", "no log-probabilities are requested"),
        (
            f"{ROLLOUT}.val_kwargs.temperature=0.7",
            f"{ROLLOUT}.val_kwargs: no effect here; a run",
        ),
        ("ray_kwargs.ray_init.num_cpus=16", "four logical CPUs"),
        ("trainer.project_name=p", "wandb.project"),
        ("hydra.run.dir=x", "output.dir"),
    ],
)
def test_what_has_no_effect_is_named_with_what_happens_instead(override: str, said: str) -> None:
    config = load_config(None, [override])
    (line,) = notices(config.run.verl_keys)
    assert said in line
    assert "no effect here" in line
    assert config.protocol() == Config().protocol()


@pytest.mark.parametrize(
    "override",
    [
        f"{ROLLOUT}.ignore_eos=false",
        f"{ROLLOUT}.expert_parallel_size=1",
        "custom_reward_function.path=pkg://plumbline_reward",
        "data.train_files=null",
        "ray_kwargs.ray_init.num_cpus=null",
    ],
)
def test_what_is_so_anyway_needs_no_word(override: str) -> None:
    config = load_config(None, [override])
    assert notices(config.run.verl_keys) == []
    assert config.model_copy(update={"run": Config().run}) == Config()


def test_secrets_of_engines_are_not_recorded() -> None:
    message = refusal(None, "ray_kwargs.ray_init.runtime_env.env_vars={HF_TOKEN: hf_12345678}")
    assert "HF_TOKEN is a secret" in message
    assert "hf_12345678" not in message


def test_secrets_of_keys_without_effect_are_not_recorded() -> None:
    given = ["ray_kwargs.ray_init._redis_password=hunter22", "critic={hub: {api_key: hunter22}}"]
    config = load_config(None, given)
    assert "hunter22" not in config.model_dump_json()
    assert set(config.run.verl_keys) == {"ray_kwargs.ray_init._redis_password", "critic"}


def test_an_error_names_our_key() -> None:
    assert f"'{ROLLOUT}.temperature'" in refusal(None, "rollout.temperature=hot")
    assert f"did you mean '{ROLLOUT}.temperature'?" in refusal(None, "rollout.temprature=1")


# Two names of one key


def test_the_command_line_counts_whichever_name_it_uses(tmp_path: Path) -> None:
    verls = written(tmp_path, "data: {train_files: [a]}\nrollout: {top_p: 0.5}\n")
    assert load_config(verls, ["data.eval_files=[b]"]).data.eval_files == ["b"]
    assert load_config(verls, [f"{ROLLOUT}.top_p=0.6"]).actor_rollout_ref.rollout.top_p == 0.6
    ours = written(tmp_path, "data: {eval_files: [a]}\n")
    assert load_config(ours, ["data.train_files=b"]).data.eval_files == ["b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "data: {train_files: [a], eval_files: [b]}",
            'data.train_files=["a"] and data.eval_files=["b"]',
        ),
        ("rollout: {n: 2}\ndata: {n_samples: 5}", "rollout.n=2 and data.n_samples=5"),
        ("sandbox_fusion: {url: a}\nreward: {sandbox_fusion: {url: b}}", "keep one of them"),
    ],
)
def test_two_names_with_different_values_are_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(written(tmp_path, text))
