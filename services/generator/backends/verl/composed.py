"""verl's own configuration, with this run's values laid over its defaults."""

from typing import Any

from services.generator.backends.verl.environment import own_cluster
from shared.config import Config
from shared.errors import ConfigError

_CPU_CACHE_BYTES = 1 << 28


def overrides(config: Config) -> dict[str, Any]:
    """The values by verl's dotted names, of the sections trainer, model and rollout."""
    trainer, model = config.trainer, config.actor_rollout_ref.model
    rollout = config.actor_rollout_ref.rollout
    values: dict[str, Any] = {
        "trainer.n_gpus_per_node": trainer.n_gpus_per_node,
        "trainer.nnodes": trainer.nnodes,
        "trainer.device": trainer.device,
    }
    values |= {f"actor_rollout_ref.model.{key}": value for key, value in model.model_dump().items()}
    # verl takes the chat template and the model's architecture from there.
    values["actor_rollout_ref.model.load_tokenizer"] = True
    given = rollout.model_dump(exclude={"engine_kwargs"})
    values |= {f"actor_rollout_ref.rollout.{key}": value for key, value in given.items()}
    values |= {
        "actor_rollout_ref.rollout.max_model_len": rollout.max_model_len
        or rollout.prompt_length + rollout.response_length,
        "actor_rollout_ref.rollout.skip_tokenizer_init": False,
        # Nobody else needs the GPU's memory in between: there is no training here.
        "actor_rollout_ref.rollout.enable_sleep_mode": False,
        "actor_rollout_ref.rollout.full_determinism": False,
        f"actor_rollout_ref.rollout.engine_kwargs.{rollout.name}": _engine_kwargs(config),
    }
    if config.generation.verl.cpu_engine:
        # Graphs are CUDA's; compiling for a CPU takes longer than it saves.
        values["actor_rollout_ref.rollout.enforce_eager"] = True
    return values


def _engine_kwargs(config: Config) -> dict[str, Any]:
    rollout, verl = config.actor_rollout_ref.rollout, config.generation.verl
    options: dict[str, Any] = {}
    if verl.cpu_engine:
        # Without it the engine takes its share of the whole machine's memory.
        options["kv_cache_memory_bytes"] = _CPU_CACHE_BYTES
    if verl.chat_template:
        options["chat_template"] = verl.chat_template
    if config.generation.deterministic and rollout.name == "sglang":
        options["enable_deterministic_inference"] = True  # vLLM is told through the environment
    return {**options, **rollout.engine_kwargs.get(rollout.name, {})}


def compose(config: Config) -> Any:
    """verl's ``ppo_trainer`` as an OmegaConf document. Needs verl."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("verl.trainer.config", version_base=None):
        document = hydra_compose("ppo_trainer")
    OmegaConf.set_struct(document, False)
    for key, value in overrides(config).items():
        OmegaConf.update(document, key, value, merge=True, force_add=True)
    return document


def replicas(config: Config) -> int:
    """How many replicas the GPUs make.

    Raises:
        ConfigError: They make none, or some are left over, or the nodes are not this cluster's.
    """
    trainer, rollout = config.trainer, config.actor_rollout_ref.rollout
    each, gpus = rollout.gpus_per_replica, trainer.n_gpus_per_node * trainer.nnodes
    if gpus == 0:
        raise ConfigError("trainer.n_gpus_per_node is 0: no GPU for a replica")
    if gpus % each:
        raise ConfigError(
            f"a replica takes {each} GPUs (tensor x data x pipeline parallel size), which does not "
            f"divide the {gpus} of trainer.n_gpus_per_node x trainer.nnodes"
        )
    if each > trainer.n_gpus_per_node and each % trainer.n_gpus_per_node:
        raise ConfigError(
            f"a replica of {each} GPUs does not fit onto nodes of {trainer.n_gpus_per_node}"
        )
    if trainer.nnodes > 1 and own_cluster(config):
        raise ConfigError(
            f"trainer.nnodes is {trainer.nnodes}, but Ray is started on this machine alone; name "
            "the cluster in generation.verl.ray_address"
        )
    return gpus // each
