"""Configuration of verl and its engines: overrides of verl's defaults, environment variables."""

import os
import shutil
from collections.abc import Mapping
from typing import Any

from shared.config import Config, RolloutConfig
from shared.errors import ConfigError

_CPU_CACHE_BYTES = 1 << 28
LOOPBACK = "127.0.0.1"

# Environment variables

_ALWAYS = {
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Disable deduplication and colours of log lines.
    "RAY_DEDUP_LOGS": "0",
    "RAY_COLOR_PREFIX": "0",
}
# For a cluster on this machine only, where everything listens on loopback.
_LOCAL = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # otherwise Ray uses the external address
    "RAY_AUTH_MODE": "disabled",  # otherwise Ray writes a token into the home folder
    "VLLM_HOST_IP": LOOPBACK,
}
_CPU = {
    # Otherwise every replica binds to the same core.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


def starts_own_cluster(config: Config) -> bool:
    """Whether the service starts Ray itself rather than joining a cluster."""
    return config.generation.verl.ray_address is None


def environment_variables(config: Config) -> dict[str, str]:
    """Environment variables for the replicas of this config."""
    variables = _ALWAYS | config.generation.verl.env_vars
    if starts_own_cluster(config):
        variables |= _LOCAL
    if config.generation.verl.cpu_engine:
        variables |= _CPU
        if shutil.which("g++") is None:
            # vLLM compiles a few functions even with compilation of the model disabled.
            variables["TORCH_COMPILE_DISABLE"] = "1"
    if config.generation.deterministic:
        variables["VLLM_BATCH_INVARIANT"] = "1"
    return variables


def engine_variables(config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables to set through Ray; engines inherit the rest of the service's environment."""
    variables = child_environment(config, environment)
    return {name: variables[name] for name in environment_variables(config)}


def child_environment(
    config: Config, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a child process; the user's values win unless they change results."""
    base = dict(os.environ if environment is None else environment)
    fixed = {"VLLM_BATCH_INVARIANT", *_LOCAL, *config.generation.verl.env_vars}
    ours = environment_variables(config)
    kept = {name: value for name, value in base.items() if name not in fixed or name not in ours}
    return {**ours, **kept}


# verl's configuration


def overrides(config: Config, rank: int = 0) -> dict[str, object]:
    """Overrides of verl's sections trainer, model and rollout, by dotted name, for one replica."""
    trainer, model = config.trainer, config.actor_rollout_ref.model
    rollout = config.actor_rollout_ref.rollout
    values: dict[str, object] = {
        "trainer.n_gpus_per_node": trainer.n_gpus_per_node,
        "trainer.nnodes": trainer.nnodes,
        "trainer.device": trainer.device,
    }
    values |= {f"actor_rollout_ref.model.{key}": value for key, value in model.model_dump().items()}
    # verl takes the chat template and the model's architecture from there.
    values["actor_rollout_ref.model.load_tokenizer"] = True
    section = rollout.model_dump(exclude={"engine_kwargs"})
    values |= {f"actor_rollout_ref.rollout.{key}": value for key, value in section.items()}
    values |= {
        "actor_rollout_ref.rollout.max_model_len": context(rollout),
        "actor_rollout_ref.rollout.skip_tokenizer_init": False,
        # Sleep mode frees GPU memory for training, which does not happen here.
        "actor_rollout_ref.rollout.enable_sleep_mode": False,
        "actor_rollout_ref.rollout.full_determinism": False,
        f"actor_rollout_ref.rollout.engine_kwargs.{rollout.name}": _engine_kwargs(config, rank),
    }
    if config.generation.verl.cpu_engine:
        # CUDA graphs need a GPU, and compiling for a CPU takes longer than it saves.
        values["actor_rollout_ref.rollout.enforce_eager"] = True
    return values


def context(rollout: RolloutConfig) -> int:
    """Longest prompt and response together, in tokens."""
    return rollout.max_model_len or rollout.prompt_length + rollout.response_length


def _engine_kwargs(config: Config, rank: int) -> dict[str, object]:
    rollout, verl = config.actor_rollout_ref.rollout, config.generation.verl
    options = _sglang_options(config, rank) if rollout.name == "sglang" else {}
    if verl.cpu_engine:
        # By default the engine reserves a share of the machine's memory.
        options["kv_cache_memory_bytes"] = _CPU_CACHE_BYTES
    if verl.chat_template:
        options["chat_template"] = verl.chat_template
    return {**options, **rollout.engine_kwargs.get(rollout.name, {})}


def _sglang_options(config: Config, rank: int) -> dict[str, object]:
    """Options that verl 0.9.1 derives from its own keys for vLLM, but not for SGLang.

    Source: verl 0.9.1, verl/workers/rollout/sglang_rollout/async_sglang_server.py.
    """
    rollout = config.actor_rollout_ref.rollout
    tokens = rollout.max_num_batched_tokens
    options: dict[str, object] = {
        "context_length": context(rollout),
        # The model's generation_config.json would add penalties and limits to the sampling.
        "sampling_defaults": "openai",
        # The same seed on two replicas would give copies of samples.
        "random_seed": rollout.seed + rank,
        "disable_radix_cache": not rollout.enable_prefix_caching,
        "chunked_prefill_size": tokens if rollout.enable_chunked_prefill else -1,
        "max_prefill_tokens": tokens,
        "enable_metrics": not rollout.disable_log_stats,
    }
    if config.generation.deterministic:
        options["enable_deterministic_inference"] = True  # vLLM has an environment variable
    return options


def compose(config: Config, rank: int = 0) -> Any:
    """Compose verl's ``ppo_trainer`` with the overrides, as an OmegaConf document. Needs verl."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("verl.trainer.config", version_base=None):
        document = hydra_compose("ppo_trainer")
    OmegaConf.set_struct(document, False)
    for key, value in overrides(config, rank).items():
        OmegaConf.update(document, key, value, merge=True, force_add=True)
    return document


def count_replicas(config: Config) -> int:
    """The number of replicas that use all GPUs; raises ConfigError if the sizes do not fit."""
    trainer, rollout = config.trainer, config.actor_rollout_ref.rollout
    if rollout.pipeline_model_parallel_size > 1:
        raise ConfigError(
            f"actor_rollout_ref.rollout.pipeline_model_parallel_size is "
            f"{rollout.pipeline_model_parallel_size}, but verl's rollouts have one stage; set "
            "tensor_model_parallel_size instead, which may span nodes"
        )
    size, gpus = rollout.gpus_per_replica, trainer.n_gpus_per_node * trainer.nnodes
    if gpus == 0:
        raise ConfigError("trainer.n_gpus_per_node is 0: no GPU for a replica")
    if gpus % size:
        raise ConfigError(
            f"a replica takes {size} GPUs (tensor x data x pipeline parallel size), which does not "
            f"divide the {gpus} of trainer.n_gpus_per_node x trainer.nnodes"
        )
    if size > trainer.n_gpus_per_node and size % trainer.n_gpus_per_node:
        raise ConfigError(
            f"a replica of {size} GPUs does not fit onto nodes of {trainer.n_gpus_per_node}"
        )
    if trainer.nnodes > 1 and starts_own_cluster(config):
        raise ConfigError(
            f"trainer.nnodes is {trainer.nnodes}, but Ray is started on this machine alone; name "
            "the cluster in generation.verl.ray_address"
        )
    return gpus // size
