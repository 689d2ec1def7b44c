"""The compared servers: our generator, and `vllm serve` with the same engine settings."""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.generator.backends.verl.engine_config import child_environment
from shared.config import Config
from shared.service.processes import free_port
from tests.bench.generation.flags import default_flags, matched_flags
from tests.bench.generation.processes import Launch, Running, running, wait_for

OURS = "ours"
VLLM = "vllm"
VLLM_DEFAULTS = "vllm-defaults"
SIDES = (OURS, VLLM, VLLM_DEFAULTS)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that gives tokens. ``start_seconds`` go from its process's start to the first one.

    It is asked at ``urls`` in turn; ``replicas`` are the addresses of the engines behind it.
    ``pid`` is the process that is asked, where that is not ``running``.
    """

    side: str
    urls: Sequence[str]
    model: str
    replicas: Sequence[str]
    start_seconds: float
    running: Running
    pid: int | None = None


@contextmanager
def serving(side: str, config: Config, folder: Path) -> Iterator[Server]:
    """Start a server, and end it with the block.

    Raises:
        ServerError: It ended before it was ready.
    """
    folder.mkdir(parents=True, exist_ok=True)
    start = _generator if side == OURS else _vllm
    launch, ready = start(side, config, folder)
    with running(launch) as process:
        found: list[_Ready] = []
        wait_for(lambda: found.append(ready()) or found[-1] is not None, process)
        url, replicas = found[-1]
        model = model_of(url)
        _first_token(url, model)
        yield Server(side, [url], model, replicas, time.monotonic() - process.began, process)


_Ready = tuple[str, Sequence[str]] | None
_Start = tuple[Launch, Callable[[], _Ready]]


def environment(config: Config) -> dict[str, str]:
    """What all sides have in their environment: one set of GPUs, verl's variables, no network."""
    given = child_environment(config)
    given |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    verl = config.generation.verl
    # The nodes of a cluster have their GPUs from elsewhere.
    if not verl.cpu_engine and verl.ray_address is None:
        wanted = config.trainer.n_gpus_per_node
        visible = given.get("CUDA_VISIBLE_DEVICES", "")
        gpus = visible.split(",") if visible else [str(gpu) for gpu in range(wanted)]
        given["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[:wanted])
    return given


def _generator(side: str, config: Config, folder: Path) -> _Start:
    config_file, port_file = folder / "config.yaml", folder / "port"
    config_file.write_text(json.dumps(config.model_dump(mode="json")))  # which is YAML as well
    port_file.unlink(missing_ok=True)
    variables = environment(config) | {
        "PLUMBLINE_GENERATOR_BACKEND": "verl",
        "PLUMBLINE_GENERATOR_CONFIG": str(config_file),
        "PLUMBLINE_PORT_FILE": str(port_file),
        "HOST": "127.0.0.1",
        "PORT": "0",
    }

    def ready() -> _Ready:
        if not port_file.exists():
            return None
        url = f"http://127.0.0.1:{port_file.read_text().strip()}"
        replicas = (_try(f"{url}/readyz") or {}).get("replicas", [])
        if not replicas or any(one["state"] != "healthy" for one in replicas):
            return None
        return url, [one["url"] for one in replicas]

    command = [sys.executable, "-m", "services.generator"]
    return Launch(side, command, variables, folder / "log"), ready


def _vllm(side: str, config: Config, folder: Path) -> _Start:
    flags = matched_flags(config) if side == VLLM else default_flags(config)
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"),
        *(config.actor_rollout_ref.model.path, "--host", "127.0.0.1", "--port", str(port)),
        *flags,
    ]
    (folder / "command").write_text(json.dumps(command))

    def ready() -> _Ready:
        return (url, [url]) if _try(f"{url}/v1/models") else None

    return Launch(side, command, environment(config), folder / "log"), ready


def model_of(url: str) -> str:
    """What a server calls its model."""
    return str(_get(f"{url}/v1/models")["data"][0]["id"])


def _first_token(url: str, model: str) -> None:
    body = json.dumps({"model": model, "prompt": "1", "max_tokens": 1}).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", body, headers)):
        pass


def _try(url: str) -> dict[str, Any] | None:
    try:
        return _get(url)
    except (urllib.error.URLError, OSError):
        return None


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)
