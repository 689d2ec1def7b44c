"""Configuration of verl and its engines: overrides, environment, number of replicas."""

import json
from pathlib import Path

import pytest

from services.generator.backends.verl.engine_config import (
    child_environment,
    count_replicas,
    engine_variables,
    environment_variables,
    overrides,
)
from shared.config import load_config
from shared.errors import ConfigError

ROLLOUT = "actor_rollout_ref.rollout."
SERVER_ARGS = Path(__file__).parents[2] / "fixtures" / "sglang" / "server_args.json"


EIGHT, TENSOR = "trainer.n_gpus_per_node=8", f"{ROLLOUT}tensor_model_parallel_size"
CLUSTER = "generation.verl.ray_address=auto"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], 1),
        ([EIGHT, f"{TENSOR}=2"], 4),
        ([EIGHT, f"{ROLLOUT}data_parallel_size=4"], 2),
        (["trainer.n_gpus_per_node=4", "trainer.nnodes=2", f"{TENSOR}=8", CLUSTER], 1),
    ],
)
def test_replicas(given: list[str], expected: int) -> None:
    assert count_replicas(load_config(None, given)) == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["trainer.n_gpus_per_node=0"], "n_gpus_per_node is 0"),
        (["trainer.n_gpus_per_node=3", f"{TENSOR}=2"], "takes 2 GPUs"),
        (["trainer.nnodes=2"], "on this machine alone"),
        (["trainer.n_gpus_per_node=2", f"{ROLLOUT}pipeline_model_parallel_size=2"],
         "verl's rollouts have one stage; set tensor_model_parallel_size"),
        (["trainer.n_gpus_per_node=4", "trainer.nnodes=3", f"{TENSOR}=6", CLUSTER],
         "does not fit onto nodes of 4"),
    ],
)  # fmt: skip
def test_gpus_that_make_no_replicas(given: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        count_replicas(load_config(None, given))


def test_the_plans_layout_goes_to_verl_as_it_is() -> None:
    config = load_config("configs/phase0_eval.yaml")
    values = overrides(config)
    assert values["trainer.n_gpus_per_node"] == 8
    assert values["actor_rollout_ref.model.path"] == config.actor_rollout_ref.model.path
    for key in ("tensor_model_parallel_size", "max_num_seqs", "load_format", "enforce_eager"):
        assert values[ROLLOUT + key] == getattr(config.actor_rollout_ref.rollout, key)
    assert values[ROLLOUT + "max_model_len"] == 4096 + 2048
    assert values[ROLLOUT + "engine_kwargs.vllm"] == {}


def test_an_engines_own_options_win() -> None:
    given = "actor_rollout_ref.rollout.engine_kwargs.vllm={kv_cache_memory_bytes: 7, other: 1}"
    cpu = "generation.verl.cpu_engine=true"
    template = "generation.verl.chat_template=/t.jinja"
    values = overrides(load_config(None, [given, cpu, template]))
    options = values[ROLLOUT + "engine_kwargs.vllm"]
    assert options == {"kv_cache_memory_bytes": 7, "other": 1, "chat_template": "/t.jinja"}
    assert values[ROLLOUT + "enforce_eager"] is True


def sglang_options(*given: str, rank: int = 0) -> dict[str, object]:
    values = overrides(load_config(None, [f"{ROLLOUT}name=sglang", *given]), rank)
    options = values[f"{ROLLOUT}engine_kwargs.sglang"]
    assert isinstance(options, dict)
    return options


def test_determinism_is_an_option_of_sglang_and_a_variable_of_vllm() -> None:
    deterministic = "generation.deterministic=true"
    assert sglang_options(deterministic)["enable_deterministic_inference"] is True
    assert "enable_deterministic_inference" not in sglang_options()
    vllm = load_config(None, [deterministic])
    assert overrides(vllm)[f"{ROLLOUT}engine_kwargs.vllm"] == {}
    assert environment_variables(vllm)["VLLM_BATCH_INVARIANT"] == "1"


def test_sglang_gets_what_verl_derives_for_vllm_only() -> None:
    lengths = [f"{ROLLOUT}prompt_length=300", f"{ROLLOUT}response_length=200"]
    options = sglang_options(*lengths, f"{ROLLOUT}max_num_batched_tokens=2048", rank=3)
    assert options == {
        "context_length": 500,
        "sampling_defaults": "openai",
        "random_seed": 45,
        "disable_radix_cache": False,
        "chunked_prefill_size": 2048,
        "max_prefill_tokens": 2048,
        "enable_metrics": True,
    }
    off = sglang_options(
        f"{ROLLOUT}enable_prefix_caching=false",
        f"{ROLLOUT}enable_chunked_prefill=false",
        f"{ROLLOUT}disable_log_stats=true",
    )
    assert off["disable_radix_cache"] is True
    assert off["chunked_prefill_size"] == -1
    assert off["enable_metrics"] is False
    own = f"{ROLLOUT}engine_kwargs.sglang={{attention_backend: triton, random_seed: 1}}"
    assert sglang_options(own)["attention_backend"] == "triton"
    assert sglang_options(own)["random_seed"] == 1


def test_sglang_has_the_options_that_it_gets() -> None:
    """The fields of SGLang's own ``ServerArgs``, in the release that verl 0.9.1 names."""
    fields = json.loads(SERVER_ARGS.read_text())["fields"]
    template = "generation.verl.chat_template=/t.jinja"
    types = {bool: ("bool",), int: ("int", "Optional[int]"), str: ("str", "Optional[str]")}
    for name, value in sglang_options("generation.deterministic=true", template).items():
        assert fields[name] in types[type(value)], name


def test_what_the_user_has_set_wins_where_it_decides_no_number() -> None:
    environment = {"NCCL_DEBUG": "INFO", "VLLM_HOST_IP": "0.0.0.0", "VLLM_BATCH_INVARIANT": "0"}
    variables = child_environment(load_config(None, ["generation.deterministic=true"]), environment)
    assert variables["NCCL_DEBUG"] == "INFO"
    assert variables["VLLM_HOST_IP"] == "127.0.0.1"
    assert variables["VLLM_BATCH_INVARIANT"] == "1"


def test_engines_have_the_configs_variables_but_for_what_is_fixed() -> None:
    variables = "{NCCL_DEBUG: INFO, VLLM_HOST_IP: 0.0.0.0, MY_PLUGIN: a}"
    config = load_config(None, [f"generation.verl.env_vars={variables}"])
    words = engine_variables(config, {"NCCL_DEBUG": "TRACE", "HOME": "/home"})
    assert (words["NCCL_DEBUG"], words["MY_PLUGIN"]) == ("INFO", "a")
    assert words["VLLM_HOST_IP"] == "127.0.0.1"
    assert "HOME" not in words


def test_without_a_compiler_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = load_config(None, ["generation.verl.cpu_engine=true"])
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "TORCH_COMPILE_DISABLE" not in environment_variables(config)
    compiler.unlink()
    assert environment_variables(config)["TORCH_COMPILE_DISABLE"] == "1"
