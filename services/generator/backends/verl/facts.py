"""Provenance of a replica, recorded in run.json: versions, hardware, configuration, model."""

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.generator.backends.verl import cleanup
from services.generator.backends.verl.engine_config import environment_variables
from services.generator.backends.verl.messages import Hardware, ModelFacts, ReplicaFacts
from services.generator.backends.verl.model_folder import ModelFolder
from shared.config import Config
from shared.versions import versions_of

_ENGINES = ("vllm", "sglang", "torch", "transformers", "flashinfer-python")
_PACKAGES = ("plumbline", "verl", "ray", *_ENGINES)
_NODE_SECONDS = 15


def gather(config: Config, composed: Any, model: ModelFolder, replica: Any) -> ReplicaFacts:
    """Collect the facts about a started replica; ``composed`` is verl's configuration."""
    from omegaconf import OmegaConf

    sections = {
        name: OmegaConf.to_container(composed.actor_rollout_ref[name], resolve=True)
        for name in ("model", "rollout")
    }
    hardware = on_nodes(replica, local_hardware)
    template = _chat_template(config, model)
    return ReplicaFacts(
        engine=config.actor_rollout_ref.rollout.name,
        versions=versions_of(_PACKAGES),
        hardware=[Hardware(gpus=gpus, cpu=cpu) for gpus, cpu in filter(None, hardware)],
        config=sections,
        environment=environment_variables(config),
        model=_model(model),
        chat_template=template,
        chat_template_sha256=hashlib.sha256(template.encode()).hexdigest(),
    )


def local_hardware() -> tuple[list[str], str | None]:
    """GPUs (name, driver, memory) as nvidia-smi lists them, and the CPU's name.

    Returns builtin types, because it also runs on machines without Plumbline.
    """
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        listed = subprocess.run(
            query, capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        listed = ""
    gpus = [line.strip() for line in listed.splitlines() if line.strip()]
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return gpus, None
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return gpus, next(names, None)


def on_nodes(replica: Any, function: Callable[..., Any], *args: object) -> list[Any]:
    """Run a function on each of the replica's machines; None for a machine where it failed."""
    import ray

    return [_result(ray, call(worker, function, *args)) for worker in node_workers(replica)]


def node_workers(replica: Any) -> list[Any]:
    """One of verl's workers for each of the replica's machines; they are idle."""
    import ray

    nodes = [
        call(worker, lambda: ray.get_runtime_context().get_node_id()) for worker in replica.workers
    ]
    first_of_node: dict[str, object] = {}
    for worker, node in zip(replica.workers, nodes, strict=True):
        if (name := _result(ray, node)) is not None:
            first_of_node.setdefault(name, worker)
    return list(first_of_node.values())


def call(actor: Any, function: Callable[..., Any], *args: object) -> Any:
    """Run a function in an actor of the replica; returns a reference to its result."""
    from ray import cloudpickle

    from services.generator.backends.verl import facts

    for module in (cleanup, facts):  # other machines may lack these modules
        cloudpickle.register_pickle_by_value(module)
    return actor.__ray_call__.remote(lambda _actor: function(*args))


def _result(ray: Any, call: Any) -> Any:
    try:
        return ray.get(call, timeout=_NODE_SECONDS)
    except Exception:  # noqa: BLE001 - a lost machine must not fail the replica
        return None


def _model(model: ModelFolder) -> ModelFacts:
    weights = [path for kind in ("*.safetensors", "*.bin") for path in model.path.glob(kind)]
    text = (model.path / "config.json").read_bytes()
    # The cache of the hub names snapshot folders after commits.
    revision = model.path.name if model.path.parent.name == "snapshots" else None
    return ModelFacts(
        architecture=model.architecture,
        context=model.context,
        config_sha256=hashlib.sha256(text).hexdigest(),
        weights={path.name: path.stat().st_size for path in sorted(weights)},
        revision=revision,
    )


def _chat_template(config: Config, model: ModelFolder) -> str:
    template_file = config.generation.verl.chat_template
    if template_file:
        return Path(template_file).read_text(encoding="utf-8")
    from transformers import AutoTokenizer

    trust = config.actor_rollout_ref.model.trust_remote_code
    tokenizer = AutoTokenizer.from_pretrained(model.path, trust_remote_code=trust)
    template = tokenizer.chat_template
    return template if isinstance(template, str) else json.dumps(template, sort_keys=True)
