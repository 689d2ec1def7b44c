"""What a replica is made of, for run.json."""

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.generator.backends.verl import leftovers
from services.generator.backends.verl.environment import variables
from services.generator.backends.verl.model_folder import ModelFolder
from shared.config import Config
from shared.versions import versions_of

_PACKAGES = (
    "plumbline",
    "verl",
    "vllm",
    "sglang",
    "torch",
    "transformers",
    "ray",
    "flashinfer-python",
)
_NODE_SECONDS = 15


def gather(config: Config, composed: Any, model: ModelFolder, replica: Any) -> dict[str, Any]:
    """Versions, hardware, verl's resolved configuration, the model and its chat template."""
    from omegaconf import OmegaConf

    sections = {
        name: OmegaConf.to_container(composed.actor_rollout_ref[name], resolve=True)
        for name in ("model", "rollout")
    }
    hardware = on_nodes(replica, hardware_here)
    return {
        "engine": config.actor_rollout_ref.rollout.name,
        "versions": versions_of(_PACKAGES),
        "hardware": [one for one in hardware if one is not None],
        "config": sections,
        "environment": variables(config),
        "model": _model(model),
        **_chat_template(config, model),
    }


def hardware_here() -> dict[str, Any]:
    """GPUs (name, driver, memory) as nvidia-smi lists them, and the CPU's name."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        listed = subprocess.run(
            query, capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        listed = ""
    found: dict[str, Any] = {"gpus": [line.strip() for line in listed.splitlines() if line.strip()]}
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        found["cpu"] = next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return found


def on_nodes(replica: Any, function: Callable[..., Any], *args: object) -> list[Any]:
    """Run a function on each of the replica's machines; None where it could not be run.

    It runs in verl's own workers there, which have nothing else to do and need no start.
    """
    import ray
    from ray import cloudpickle

    from services.generator.backends.verl import facts

    for module in (leftovers, facts):  # other machines may not have them
        cloudpickle.register_pickle_by_value(module)
    first_of_node: dict[str, Any] = {}
    for worker, node in _with_nodes(replica):
        first_of_node.setdefault(node, worker)
    asked = [
        worker.__ray_call__.remote(lambda _worker: function(*args))
        for worker in first_of_node.values()
    ]
    return [_got(ray, one) for one in asked]


def _with_nodes(replica: Any) -> list[tuple[Any, str]]:
    import ray

    nodes = [
        worker.__ray_call__.remote(lambda _worker: ray.get_runtime_context().get_node_id())
        for worker in replica.workers
    ]
    found = [_got(ray, node) for node in nodes]
    return [(w, node) for w, node in zip(replica.workers, found, strict=True) if node is not None]


def _got(ray: Any, asked: Any) -> Any:
    try:
        return ray.get(asked, timeout=_NODE_SECONDS)
    except Exception:  # noqa: BLE001 - a machine may be gone, and no fact is worth a replica
        return None


def _model(model: ModelFolder) -> dict[str, Any]:
    weights = [path for kind in ("*.safetensors", "*.bin") for path in model.path.glob(kind)]
    text = (model.path / "config.json").read_bytes()
    found: dict[str, Any] = {
        "architecture": model.architecture,
        "context": model.context,
        "vocabulary": model.vocabulary,
        "config_sha256": hashlib.sha256(text).hexdigest(),
        "weights": {path.name: path.stat().st_size for path in sorted(weights)},
    }
    if model.path.parent.name == "snapshots":  # the hub's cache names folders after commits
        found["revision"] = model.path.name
    return found


def _chat_template(config: Config, model: ModelFolder) -> dict[str, str]:
    given = config.generation.verl.chat_template
    if given:
        template = Path(given).read_text(encoding="utf-8")
    else:
        from transformers import AutoTokenizer

        trust = config.actor_rollout_ref.model.trust_remote_code
        tokenizer = AutoTokenizer.from_pretrained(model.path, trust_remote_code=trust)
        template = tokenizer.chat_template
        if not isinstance(template, str):
            template = json.dumps(template, sort_keys=True)
    digest = hashlib.sha256(template.encode()).hexdigest()
    return {"chat_template": template, "chat_template_sha256": digest}
