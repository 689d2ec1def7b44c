"""Backend ``verl``: standalone replicas (vLLM or SGLang) on Ray, behind the router.

The service itself imports neither Ray nor verl. The local Ray cluster and each replica run in child
processes that exchange JSON lines with the service. So the service keeps answering requests even if
an engine, Ray or verl crashes or hangs (some of verl's calls have no timeout). When a replica's
process exits, Ray frees its resources.
"""

import asyncio
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from services.generator.backends.verl import cleanup, engine_config
from services.generator.backends.verl.child import Child
from services.generator.backends.verl.messages import ReplicaFacts, ReplicaReady, ReplicaSpec
from services.generator.backends.verl.model_folder import (
    check_fits,
    local_folder,
    read_model_folder,
)
from services.generator.backends.verl.ray_cluster import RayCluster
from services.generator.backends.verl.self_check import check_self, describe
from services.generator.router.app import serve_router
from services.generator.router.replica import Replica
from services.generator.settings import PREFIX, GeneratorSettings
from shared.config import Config, load_config
from shared.errors import ConfigError, PlumblineError, ServiceError
from shared.service.logs import get_logger
from shared.verl_keys import notices

log = get_logger(__name__)
_HOST_MODULE = "services.generator.backends.verl.host"
_STOP_SECONDS = 20.0


async def serve_verl(settings: GeneratorSettings) -> None:
    """Serve until SIGTERM or SIGINT, or until no replica is left.

    Raises:
        PlumblineError: The configuration cannot be served, no replica could be started, or the
            address cannot be bound.
    """
    config = load_config(settings.config or None, settings.overrides)
    for notice in notices(config.run.verl_keys):
        log.warning(notice)
    n_replicas = check(config)
    settings = _with_config(settings, config)
    log.info("serving", model=settings.model, replicas=n_replicas)
    cluster = RayCluster(config)
    factory = VerlReplicaFactory(config, cluster)

    def info() -> Mapping[str, object]:
        facts = {} if factory.facts is None else factory.facts.model_dump(mode="json")
        return {"model_name": settings.model, "replicas": n_replicas, **facts}

    try:
        await serve_router(settings, factory, n_replicas, info)
    finally:
        await asyncio.shield(cluster.close())


def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


def check(config: Config, is_installed: Callable[[str], bool] = _is_installed) -> int:
    """Validate a configuration before anything is started; returns the number of replicas.

    Raises:
        ConfigError: The configuration is contradictory, would give wrong results, needs a package
            that is not installed, or names a model that cannot be used.
    """
    rollout, verl = config.actor_rollout_ref.rollout, config.generation.verl
    if verl.cpu_engine and rollout.name != "vllm":
        raise ConfigError(f"generation.verl.cpu_engine needs vllm, not {rollout.name}")
    if verl.cpu_engine and config.generation.deterministic:
        raise ConfigError(
            "generation.deterministic: vLLM has batch-invariant kernels for GPUs only"
        )
    template = verl.chat_template or ".jinja"
    if rollout.name == "sglang" and not template.endswith(".jinja"):
        raise ConfigError(
            f"generation.verl.chat_template: SGLang reads a Jinja template only from a file named "
            f"*.jinja, not from {template!r}"
        )
    for package in ("verl", "ray", rollout.name):
        if not is_installed(package):
            raise ConfigError(
                f"{package} is not installed in {sys.prefix} (the engine is "
                f"actor_rollout_ref.rollout.name={rollout.name}); see docs/generation.md"
            )
    rollout.check_sampling()
    n_replicas = engine_config.count_replicas(config)
    folder = local_folder(config.actor_rollout_ref.model.path)
    if folder is not None:
        check_fits(read_model_folder(folder), config)
    return n_replicas


def _with_config(settings: GeneratorSettings, config: Config) -> GeneratorSettings:
    """Take settings that the environment does not set from the configuration."""
    update: dict[str, object] = {}
    if "model" not in settings.model_fields_set:  # by default the hub's name, or the folder's
        path = config.actor_rollout_ref.model.path
        on_hub = local_folder(path) is None
        name = path if on_hub else Path(path).expanduser().resolve().name
        update["model"] = config.generation.model or name
    if "router_max_in_flight" not in settings.model_fields_set:
        # Keeps a replica busy without requests queueing inside it.
        update["router_max_in_flight"] = config.actor_rollout_ref.rollout.max_num_seqs
    if not update.get("model", settings.model):
        raise ConfigError(f"the model's name is empty; set {PREFIX}MODEL")
    return settings.model_copy(update=update)


# Replicas


class VerlReplica(Replica):
    """A replica whose engine the host process ``child`` has started."""

    def __init__(self, name: str, child: Child, tag: str, ready: ReplicaReady) -> None:
        super().__init__(name, ready.url)
        self._child, self._tag, self._ready = child, tag, ready

    def describe(self) -> Mapping[str, object]:
        return {
            "engine": self._ready.facts.engine,
            "versions": self._ready.facts.versions,
            "host_pid": self._child.pid,
            "tag": self._tag,
        }

    async def ended(self) -> str:
        try:
            event = await self._child.next_event()
        except PlumblineError as error:
            return str(error)
        return f"{self.name} sent {event.kind!r} while it was running"

    async def stop(self) -> None:
        await _stop(self._child, self._tag, self._ready.shm)


class VerlReplicaFactory:
    """Starts replicas, each in a child process; ``facts`` are those of the latest for ``/info``."""

    def __init__(self, config: Config, cluster: RayCluster) -> None:
        self._config = config
        self._cluster = cluster
        self.facts: ReplicaFacts | None = None

    async def start(self, rank: int, generation: int) -> VerlReplica:
        """See :class:`services.generator.router.replica.ReplicaFactory`."""
        tag = uuid.uuid4().hex
        environment = engine_config.child_environment(self._config)
        labels = {"replica": rank, "generation": generation}
        child = Child(_HOST_MODULE, f"replica {rank}", environment, **labels)
        shm: list[str] = []
        try:
            await child.start()
            await child.send(self._config)
            # The cluster starts while the child imports its libraries, which takes longer.
            cluster = await self._cluster.join()
            await child.send(ReplicaSpec(rank=rank, name=tag[:8], tag=tag, cluster=cluster))
            ready = await child.expect(ReplicaReady)
            shm = ready.shm
            await self._check(ready, rank)
        except BaseException:
            await asyncio.shield(_stop(child, tag, shm))
            raise
        name = f"{ready.facts.engine}-{rank}" + (f".{generation}" if generation else "")
        return VerlReplica(name, child, tag, ready)

    async def _check(self, ready: ReplicaReady, rank: int) -> None:
        facts, section = None, self._config.actor_rollout_ref
        try:
            context = engine_config.context(section.rollout)
            facts = await check_self(ready.url, ready.facts.engine, context)
            log.info("self-check", replica=rank, **facts.model_dump())
        except ServiceError as error:
            # The router's health check decides whether the replica gets requests.
            log.warning("self-check failed", replica=rank, reason=str(error))
        if facts is not None and facts.looks_random:
            reason = describe(facts)
            if not self._config.generation.verl.allow_random_weights:
                raise ConfigError(
                    f"actor_rollout_ref.model.path: {section.model.path} looks randomly "
                    f"initialized: {reason}; check where the weights come from, or set "
                    "generation.verl.allow_random_weights=true"
                )
            log.warning("the model looks randomly initialized", replica=rank, reason=reason)
        self.facts = ready.facts.model_copy(update={"self_check": facts})


async def _stop(child: Child, tag: str, shm: Sequence[str]) -> None:
    """Stop a replica's host process, and kill its orphans on this machine."""
    await child.stop(_STOP_SECONDS)
    processes, files = await asyncio.to_thread(cleanup.sweep, tag, shm)
    if processes or files:
        log.info("removed orphans of a replica", processes=processes, files=files)
