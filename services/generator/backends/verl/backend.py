"""Serving a configuration's model with verl's standalone replicas."""

import asyncio
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from services.generator.backends.verl import composed
from services.generator.backends.verl.factory import VerlReplicaFactory
from services.generator.backends.verl.model_folder import (
    check_fits,
    local_folder,
    read_model_folder,
)
from services.generator.backends.verl.ray_cluster import RayCluster
from services.generator.router import serve_router
from services.generator.settings import PREFIX, GeneratorSettings
from shared.config import Config, load_config
from shared.errors import ConfigError
from shared.service.logs import get_logger

log = get_logger(__name__)


async def serve_verl(settings: GeneratorSettings) -> None:
    """Serve until SIGTERM or SIGINT, or until no replica is left.

    Raises:
        PlumblineError: The configuration cannot be served, no replica could be started, or the
            address cannot be bound.
    """
    config = load_config(settings.config or None, settings.overrides)
    n_replicas = check(config)
    settings = _completed(settings, config)
    log.info("serving", model=settings.model, replicas=n_replicas)
    cluster = RayCluster(config)
    factory = VerlReplicaFactory(config, cluster)

    def info() -> Mapping[str, object]:
        return {"model_name": settings.model, "replicas": n_replicas, **factory.facts}

    try:
        await serve_router(settings, factory, n_replicas, info)
    finally:
        await asyncio.shield(cluster.close())


def check(config: Config) -> int:
    """See what can be seen before anything is started; says how many replicas there are to be.

    Raises:
        ConfigError: The configuration is contradictory, would give wrong numbers, or names a model
            that cannot be used.
    """
    rollout, verl = config.actor_rollout_ref.rollout, config.generation.verl
    if rollout.mode != "async":
        raise ConfigError(
            f"actor_rollout_ref.rollout.mode is {rollout.mode!r}; verl has async only"
        )
    if verl.cpu_engine and rollout.name != "vllm":
        raise ConfigError(f"generation.verl.cpu_engine goes with vllm, not with {rollout.name}")
    if verl.cpu_engine and config.generation.deterministic:
        raise ConfigError(
            "generation.deterministic: vLLM has batch-invariant kernels for GPUs only"
        )
    for package in ("verl", "ray", rollout.name):
        if find_spec(package) is None:
            raise ConfigError(
                f"{package} is not installed in {sys.prefix} (the engine is "
                f"actor_rollout_ref.rollout.name={rollout.name}); see docs/generation.md"
            )
    rollout.check_sampling()
    n_replicas = composed.replicas(config)
    folder = local_folder(config.actor_rollout_ref.model.path)
    if folder is not None:
        check_fits(read_model_folder(folder), config)
    return n_replicas


def _completed(settings: GeneratorSettings, config: Config) -> GeneratorSettings:
    """What the environment leaves open is decided by the configuration."""
    update: dict[str, object] = {}
    if "model" not in settings.model_fields_set:
        update["model"] = _model_name(config)
    if "router_max_in_flight" not in settings.model_fields_set:
        # A replica is full, and none of its requests waits inside.
        update["router_max_in_flight"] = config.actor_rollout_ref.rollout.max_num_seqs
    if not update.get("model", settings.model):
        raise ConfigError(f"the model's name is empty; set {PREFIX}MODEL")
    return settings.model_copy(update=update)


def _model_name(config: Config) -> str:
    """The configured name, the one on the hub, or that of the model's folder."""
    path = config.actor_rollout_ref.model.path
    if config.generation.model:
        return config.generation.model
    return path if local_folder(path) is None else Path(path).expanduser().resolve().name
