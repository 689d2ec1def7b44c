"""The compared servers: our generator, and `vllm serve` with the same engine settings."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from services.generator.backends.verl.engine_config import child_environment
from shared.config import Config, load_config
from shared.process_environment import die_with_parent
from shared.service.processes import free_port
from tests.bench.generation.flags import matched_flags
from tests.chaos.faults import adopt_orphans, kill_all

OURS, VLLM = "ours", "vllm"
SIDES = (OURS, VLLM)
_GRACE = 45.0
_REPOSITORY = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Size:
    """Of a load on one replica. ``prompt_tokens`` are those of a prompt, on average."""

    prompts: int
    prompt_tokens: int
    new_tokens: int
    max_num_seqs: int


GPU = Size(prompts=512, prompt_tokens=200, new_tokens=256, max_num_seqs=512)
CPU = Size(prompts=32, prompt_tokens=50, new_tokens=32, max_num_seqs=32)


def make_config(
    model: str, size: Size, replicas: int, overrides: Sequence[str] = (), *, cpu_engine: bool
) -> Config:
    """A run's configuration with so many replicas of the model."""
    return load_config(
        None,
        [
            f"trainer.n_gpus_per_node={replicas}",
            f"actor_rollout_ref.model.path={model}",
            f"actor_rollout_ref.rollout.prompt_length={2 * size.prompt_tokens}",
            f"actor_rollout_ref.rollout.response_length={size.new_tokens}",
            f"actor_rollout_ref.rollout.max_num_seqs={size.max_num_seqs}",
            "actor_rollout_ref.rollout.gpu_memory_utilization=0.4",
            f"actor_rollout_ref.rollout.enforce_eager={cpu_engine}",
            f"generation.verl.cpu_engine={cpu_engine}",
            "generation.backend=verl",
            # Speed does not depend on the weights, so the model's may be random.
            "generation.verl.allow_random_weights=true",
            *overrides,
        ],
    )


class ServerError(Exception):
    """A server ended before it was ready."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that gives tokens. ``start_seconds`` go from its process's start to the first one.

    It is asked at ``urls`` in turn; ``replicas`` are the addresses of the engines behind it.
    ``pid`` is the process that is asked, behind which the engines have their own.
    """

    side: str
    urls: Sequence[str]
    model: str
    replicas: Sequence[str]
    start_seconds: float
    pid: int


@contextmanager
def serving(side: str, config: Config, folder: Path) -> Iterator[Server]:
    """Start a server, and end it with the block.

    Raises:
        ServerError: It ended before it was ready.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command, variables, ready = (_generator if side == OURS else _vllm)(config, folder)
    log, began = folder / "log", time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=variables,
            cwd=_REPOSITORY,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGTERM),
        )
    try:
        while (served := ready()) is None:
            if (code := process.poll()) is not None:
                end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                raise ServerError(f"{side} ended with exit code {code}; its log ends:\n{end}")
            time.sleep(0.1)
        url, replicas = served
        model = model_of(url)
        _first_token(url, model)
        yield Server(side, [url], model, replicas, time.monotonic() - began, process.pid)
    finally:
        # What it had started may have found another parent meanwhile.
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        process.kill()
        for left in family:
            with suppress(psutil.NoSuchProcess):
                left.kill()
        process.wait()


@contextmanager
def supervised() -> Iterator[None]:
    """End every process that a block started, also after an error.

    Raises:
        KeyboardInterrupt: In the block, on SIGTERM.
    """
    adopt_orphans()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        kill_all()


_Ready = tuple[str, Sequence[str]] | None
_Start = tuple[Sequence[str], dict[str, str], Callable[[], _Ready]]


def _environment(config: Config) -> dict[str, str]:
    """What both sides have in their environment: one set of GPUs, verl's variables, no network."""
    variables = child_environment(config)
    variables |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    verl = config.generation.verl
    # The nodes of a cluster have their GPUs from elsewhere.
    if not verl.cpu_engine and verl.ray_address is None:
        wanted = config.trainer.n_gpus_per_node
        visible = variables.get("CUDA_VISIBLE_DEVICES", "")
        gpus = visible.split(",") if visible else [str(gpu) for gpu in range(wanted)]
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[:wanted])
    return variables


def _generator(config: Config, folder: Path) -> _Start:
    config_file, port_file = folder / "config.yaml", folder / "port"
    config_file.write_text(json.dumps(config.model_dump(mode="json")))  # which is YAML as well
    port_file.unlink(missing_ok=True)
    variables = _environment(config) | {
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
        if not replicas or any(replica["state"] != "healthy" for replica in replicas):
            return None
        return url, [replica["url"] for replica in replicas]

    return [sys.executable, "-m", "services.generator"], variables, ready


def _vllm(config: Config, folder: Path) -> _Start:
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"),
        *(config.actor_rollout_ref.model.path, "--host", "127.0.0.1", "--port", str(port)),
        *matched_flags(config),
    ]
    (folder / "command").write_text(json.dumps(command))

    def ready() -> _Ready:
        return (url, [url]) if _try(f"{url}/v1/models") else None

    return command, _environment(config), ready


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
