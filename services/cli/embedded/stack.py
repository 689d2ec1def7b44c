"""Starting, watching and ending the processes of an embedded run."""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.cli.embedded.child import GRACE, Child, wait_until
from services.cli.embedded.generator import GeneratorProcess, generator_process
from services.cli.embedded.redis_server import start_redis
from shared.artifacts import OutputFolder
from shared.config import Config
from shared.errors import ServiceError

STATE = ".plumbline"
_LOCK_WAIT = 15.0
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH")


@dataclass
class EmbeddedStack:
    """The running stack: where its parts answer, and its children in order of their start."""

    folder: Path
    redis_url: str = ""
    sandbox_urls: list[str] = field(default_factory=list)
    generator_url: str | None = None
    aggregator_url: str = ""
    sandbox: dict[str, Any] = field(default_factory=dict)
    children: list[Child] = field(default_factory=list)

    async def watch(self) -> None:
        """Start children again that die, until cancelled.

        Raises:
            ServiceError: A child cannot be kept alive.
        """
        while True:
            for child in self.children:
                child.restart_if_dead()
            await asyncio.sleep(0.2)

    def stop(self) -> None:
        """End all children, Redis last."""
        running = [child for child in self.children[1:] if child.process and child.running]
        for child in running:
            if child.process:
                child.process.terminate()
        began = time.monotonic()
        for child in reversed(running):
            child.stop(max(0.1, began + child.grace - time.monotonic()))
        for child in self.children[:1]:
            child.stop(child.grace)


@contextmanager
def open_stack(
    config: Config, output: OutputFolder, *, force: bool, generator: bool
) -> Iterator[EmbeddedStack]:
    """Start what a run needs; end it on the way out, however that comes.

    Args:
        config: The run's config.
        output: Its output folder; a local one holds the stack's books and logs.
        force: Begin with empty books.
        generator: Whether the config's generator backend is wanted.

    Raises:
        ServiceError: A part does not start, or another command is at work in this folder.
    """
    state = _state_folder(output)
    state.mkdir(parents=True, exist_ok=True)
    with _locked(state / "lock") as lock:
        for part in ("redis", "logs") if force else ():
            shutil.rmtree(state / part, ignore_errors=True)
        (state / "logs").mkdir(exist_ok=True)
        stack = EmbeddedStack(state)
        try:
            _start(stack, config, lock, generator=generator)
            yield stack
        finally:
            stack.stop()


def _start(stack: EmbeddedStack, config: Config, lock: int, *, generator: bool) -> None:
    redis, stack.redis_url = start_redis(
        stack.folder / "redis", stack.folder / "logs" / "redis.log", _environment(), lock
    )
    stack.children.append(redis)
    services = []
    if given := os.environ.get("SANDBOX_URLS"):
        stack.sandbox_urls = [url.strip() for url in given.split(",") if url.strip()]
    else:
        # It is let end its programs; the others lose nothing, and might wait for Redis.
        settings = {"PLUMBLINE_SANDBOX_SHUTDOWN_SECONDS": "1"}
        services.append(_service(stack, "sandbox", settings, death_signal=signal.SIGTERM))
    asked = generator_process(config, stack.folder) if generator else None
    if asked:
        services.append(_generator(stack, asked))
    index = {"PLUMBLINE_INDEX_DIR": str(stack.folder / "index")}
    services.append(_service(stack, "aggregator", {"REDIS_URL": stack.redis_url, **index}))
    ports = {child.name: _port(stack, child) for child in services}
    if "sandbox" in ports:
        stack.sandbox_urls = [f"http://127.0.0.1:{ports['sandbox']}"]
        stack.sandbox = _ready(stack, "sandbox", stack.sandbox_urls[0])
    if asked:
        stack.generator_url = f"http://127.0.0.1:{ports['generator']}"
        _ready(stack, "generator", stack.generator_url, asked.ready)
    stack.aggregator_url = f"http://127.0.0.1:{ports['aggregator']}"
    _start_judges(stack, config)


def _generator(stack: EmbeddedStack, process: GeneratorProcess) -> Child:
    return _service(
        stack,
        "generator",
        process.settings,
        python=process.python,
        death_signal=process.death_signal,
        grace=process.grace,
    )


def _start_judges(stack: EmbeddedStack, config: Config) -> None:
    settings = {"REDIS_URL": stack.redis_url, "SANDBOX_URLS": ",".join(stack.sandbox_urls)}
    for number in range(1, (config.judge.workers or _cores()) + 1):
        name = f"judge-{number}"
        _service(stack, "judge", settings, name)


def _service(
    stack: EmbeddedStack,
    module: str,
    settings: dict[str, str],
    name: str | None = None,
    *,
    python: str = sys.executable,
    death_signal: signal.Signals = signal.SIGKILL,
    grace: float = GRACE,
) -> Child:
    name = name or module
    port_file = stack.folder / f"{name}.port"
    port_file.unlink(missing_ok=True)
    environment = _environment() | settings
    environment |= {"HOST": "127.0.0.1", "PORT": "0", "PLUMBLINE_PORT_FILE": str(port_file)}
    log = stack.folder / "logs" / f"{name}.log"
    child = Child(
        name,
        [python, "-m", f"services.{module}"],
        log,
        environment,
        death_signal=death_signal,
        grace=grace,
    )
    child.start()
    stack.children.append(child)
    return child


def _port(stack: EmbeddedStack, child: Child) -> int:
    port_file = stack.folder / f"{child.name}.port"
    wait_until(port_file.exists, child)
    port = int(port_file.read_text())
    # Started again, it has to answer where the others look for it.
    child.environment = {**child.environment, "PORT": str(port)}
    return port


def _ready(stack: EmbeddedStack, name: str, url: str, seconds: float = 60.0) -> dict[str, Any]:
    child = next(child for child in stack.children if child.name == name)
    answer: dict[str, Any] = {}

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5) as response:
                answer.update(json.load(response))
        except (urllib.error.URLError, OSError, ValueError):
            return False
        return True

    wait_until(ready, child, seconds)
    return answer


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    passed = {k: v for k, v in os.environ.items() if k.startswith(("PLUMBLINE_", "WANDB_"))}
    level = {"LOG_LEVEL": os.environ.get("LOG_LEVEL", "INFO")}
    return kept | passed | level | {"PYTHONUNBUFFERED": "1"}


def _state_folder(output: OutputFolder) -> Path:
    if output.local:
        return Path(output.path) / STATE
    # Books on a remote file system would be slow and could not be locked.
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "plumbline" / hashlib.sha256(output.url.encode()).hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    give_up = time.monotonic() + _LOCK_WAIT
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise ServiceError(
                        f"another plumb is at work in {path.parent.parent}; "
                        "wait for it or end it, or choose another --output"
                    ) from None
                time.sleep(0.1)
        yield file.fileno()


def _cores() -> int:
    return len(os.sched_getaffinity(0))
