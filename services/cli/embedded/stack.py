"""Embedded stack: starts the services of one run in order, waits for readiness, shuts them down."""

import asyncio
import fcntl
import hashlib
import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from services.cli.embedded import services
from services.cli.embedded.background import Background, Service, preload, run_aggregator, run_judge
from services.cli.embedded.environment import base_environment
from services.cli.embedded.supervisor import GRACE_SECONDS, ChildProcess, Supervisor
from shared.artifacts import OutputFolder
from shared.config import Config
from shared.errors import OutputError, ServiceError
from shared.files import remove_abandoned
from shared.run_record import SandboxFacts
from shared.service.logs import configure_logging
from shared.text import split_urls

STATE = ".plumbline"
_POLL = 0.2  # seconds between two looks at the services
_JUDGE_CONCURRENCY = "PLUMBLINE_JUDGE_CONCURRENCY"
_LEAST_CONCURRENCY = 16
# Makes a service that is not yet started, given the stack's folder and the settings of its clients.
RewardService = Callable[[Path, Mapping[str, str]], ChildProcess]


@dataclass
class EmbeddedStack:
    """The running services and their URLs.

    Attributes:
        folder: State folder with Redis' data, the aggregator's index and the logs.
        redis_url: URL of Redis.
        sandbox_urls: Base URLs of the sandboxes; of external ones, or of the embedded one.
        generator_url: Base URL of the generator, if there is one.
        reward_url: Base URL of the reward service, if there is one.
        sandbox: The embedded sandbox's own report at /readyz; None for external ones.
        supervisor: The child processes, Redis first.
        background: The services in this process.
    """

    folder: Path
    redis_url: str = ""
    sandbox_urls: list[str] = field(default_factory=list)
    generator_url: str | None = None
    reward_url: str | None = None
    sandbox: SandboxFacts | None = None
    supervisor: Supervisor = field(default_factory=Supervisor)
    background: Background | None = None

    @property
    def page_port(self) -> Path:
        """File in which the aggregator writes its port when it listens."""
        return self.folder / "aggregator.port"

    def client_settings(self) -> dict[str, str]:
        """Settings of the services that use Redis and the sandboxes."""
        own = {} if self.sandbox is None else services.NO_SANDBOX_TOKEN
        urls = ",".join(self.sandbox_urls)
        return {"REDIS_URL": self.redis_url, "SANDBOX_URLS": urls, **own}

    async def watch(self) -> None:
        """Restart child processes that die, until cancelled.

        Raises:
            PlumblineError: A child cannot be kept alive, or a service of this process has failed.
        """
        while True:
            self.supervisor.restart_dead()
            if self.background is not None:
                self.background.check()
            await asyncio.sleep(_POLL)

    def stop(self) -> None:
        """Shut all services down gracefully, Redis last."""
        if self.background is not None:
            self.background.stop()
        self.supervisor.stop()


@contextmanager
def open_stack(
    config: Config,
    output: OutputFolder,
    *,
    force: bool,
    generator: bool,
    sandboxes: Sequence[str] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
    reward: RewardService | None = None,
) -> Iterator[EmbeddedStack]:
    """Start the services of a run, and shut them down when the block ends.

    Args:
        config: The run's config.
        output: Its output folder; a local one contains the stack's data and logs.
        force: Delete Redis' data and the logs of earlier runs first.
        generator: Whether to start the config's generator backend.
        sandboxes: URLs of sandboxes that take the place of an embedded one; None for those in
            SANDBOX_URLS.
        meanwhile: Work of the command that is done while the services start.
        reward: Makes the reward service, which is started in place of the aggregator, because there
            is no run to publish.

    Raises:
        OutputError: The folder cannot be written.
        ServiceError: A service does not start, or another command uses this folder.
    """
    folder = state_folder(output)
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / "lock") as lock:
        for part in ("redis", "logs") if force else ():
            shutil.rmtree(folder / part, ignore_errors=True)
        remove_abandoned(folder)
        with _writing(folder):
            (folder / "logs").mkdir(exist_ok=True)
        if sandboxes is None:
            sandboxes = split_urls(os.environ.get("SANDBOX_URLS", ""))
        stack = EmbeddedStack(folder, sandbox_urls=[*sandboxes])
        with _logging_to(folder / "logs" / "plumb.log"):
            try:
                _start(stack, config, lock, meanwhile, generator=generator, reward=reward)
                yield stack
            finally:
                stack.stop()


def _start(
    stack: EmbeddedStack,
    config: Config,
    lock: int,
    meanwhile: Callable[[], object],
    *,
    generator: bool,
    reward: RewardService | None,
) -> None:
    """Start Redis, sandbox and generator side by side, then the judges and the aggregator.

    Nobody waits for the last two: jobs wait in the queue until the first judge takes one.
    """
    folder, start = stack.folder, stack.supervisor.start
    data = folder / "redis"
    redis, stack.redis_url = services.launch_redis(
        data, folder / "logs" / "redis.log", base_environment(), lock
    )
    stack.supervisor.children.append(redis)
    sandbox = None if stack.sandbox_urls else start(services.sandbox(folder))
    engine = start(services.generator(folder, config)) if generator else None
    meanwhile()
    preload()
    try:
        services.wait_for_answer(redis, stack.redis_url)
    except ServiceError as error:
        raise _of_damaged_files(data, error) from None
    if sandbox is not None:
        url = sandbox.wait_for_url()
        stack.sandbox_urls = [url]
        stack.sandbox = SandboxFacts.model_validate_json(sandbox.wait_for_report(url))
    _start_judges(stack, config, aggregate=reward is None)
    if reward is not None:
        settings = stack.client_settings()
        if stack.sandbox is not None and stack.sandbox.environment is not None:
            settings["PLUMBLINE_REWARD_ENVIRONMENT"] = stack.sandbox.environment.fingerprint
        child = start(reward(folder, settings))
        stack.reward_url = child.wait_for_url()
        child.wait_for_report(stack.reward_url)
    if engine is not None:
        stack.generator_url = engine.wait_for_url()
        engine.wait_for_report(stack.generator_url)


def _of_damaged_files(data: Path, error: ServiceError) -> ServiceError:
    """The error with which Redis ended, with the remedy where its files may be the cause."""
    # The place in the folder of Redis 7 and of Redis 6.
    places = (data / "appendonlydir" / "appendonly.aof.manifest", data / "appendonly.aof")
    file = next((place for place in places if place.exists()), None)
    if file is None:
        return error
    return ServiceError(
        f"Redis cannot load {file}: {error}; copy {data}, then "
        f"`redis-check-aof --fix {shlex.quote(str(file))}` keeps what is before the damage and the "
        "run makes the rest again; or use --force to start over"
    )


def _start_judges(stack: EmbeddedStack, config: Config, *, aggregate: bool) -> None:
    """Start a judge in this process with the aggregator, and further judges as processes."""
    workers = config.judge.workers or 1
    # Two completions per slot of the sandbox: one runs, and one is being prepared or checked.
    places = (stack.sandbox and stack.sandbox.concurrency) or 0
    concurrency = os.environ.get(_JUDGE_CONCURRENCY) or str(
        max(_LEAST_CONCURRENCY, math.ceil(2 * places / workers))
    )
    settings = stack.client_settings() | {
        _JUDGE_CONCURRENCY: concurrency,
        "PLUMBLINE_JUDGE_DRAIN_SECONDS": str(GRACE_SECONDS / 2),  # killed, the jobs would be lost
    }
    for number in range(2, workers + 1):
        judge = services.service(stack.folder, "judge", settings, name=f"judge-{number}")
        stack.supervisor.start(judge)
    tasks: list[Service] = [partial(run_judge, settings)]
    if aggregate:
        stack.page_port.unlink(missing_ok=True)
        index = stack.folder / "index"
        tasks.append(partial(run_aggregator, stack.redis_url, index, stack.page_port))
    stack.background = Background(*tasks)


def state_folder(output: OutputFolder) -> Path:
    """The folder of Redis' data, index and logs of a stack with this output."""
    if output.local:
        return Path(output.path) / STATE
    # Redis' data on a remote filesystem would be slow and could not be locked.
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "plumbline" / hashlib.sha256(output.shown.encode()).hexdigest()[:16]


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Write this process's log, which has those of judge and aggregator, to a file."""
    with path.open("a", encoding="utf-8") as file:
        configure_logging("plumb", os.environ.get("LOG_LEVEL", "INFO"), file)
        try:
            yield
        finally:
            configure_logging("plumb", "WARNING", sys.stderr)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write {folder}: {error.strerror or error}; choose another --output"
        ) from None


@contextmanager
def file_lock(path: Path, timeout: float = 15.0) -> Iterator[int]:
    """Hold an exclusive lock on a file; yields its descriptor, which children may inherit."""
    retries = Retrying(
        retry=retry_if_exception_type(BlockingIOError),
        stop=stop_after_delay(timeout),
        wait=wait_fixed(0.1),
        reraise=True,
    )
    with _writing(path.parent):
        opened = path.open("a")
    with opened as file:
        try:
            retries(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServiceError(
                f"another plumb command is running in {path.parent.parent}; "
                "wait for it, stop it, or choose another --output"
            ) from None
        yield file.fileno()
