"""Embedded stack: starts the services of one run in order, waits for readiness, shuts them down."""

import asyncio
import fcntl
import hashlib
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from services.cli.embedded import append_only
from services.cli.embedded.background import Background, Service, preload, run_aggregator, run_judge
from services.cli.embedded.environment import (
    OWN_SECRETS,
    SANDBOX_COMMAND,
    base_environment,
    waiting_sandbox,
)
from services.cli.embedded.services import (
    NO_SANDBOX_TOKEN,
    ServiceLaunch,
    generator_launch,
    launch_redis,
    sandbox_launch,
    wait_for_answer,
)
from services.cli.embedded.supervisor import GRACE_SECONDS, ChildProcess, Supervisor, wait_until
from shared.artifacts import OutputFolder
from shared.config import Config
from shared.errors import OutputError, ServiceError
from shared.files import remove_abandoned
from shared.process_environment import open_directly
from shared.run_record import SandboxFacts
from shared.service.logs import configure_logging
from shared.text import split_urls

STATE = ".plumbline"
_POLL = 0.2  # seconds between two looks at the services
_JUDGE_CONCURRENCY = "PLUMBLINE_JUDGE_CONCURRENCY"
_LEAST_CONCURRENCY = 16


@dataclass
class EmbeddedStack:
    """The running services and their URLs.

    Attributes:
        folder: State folder with Redis' data, the aggregator's index and the logs.
        output: The run's output folder, for messages.
        redis_url: URL of Redis.
        sandbox_urls: Base URLs of the sandboxes; of external ones, or of the embedded one.
        generator_url: Base URL of the generator, if there is one.
        reward_url: Base URL of the reward service, if there is one.
        sandbox: The embedded sandbox's own report at /readyz; None for external ones.
        supervisor: The child processes, Redis first.
        background: The services in this process.
    """

    folder: Path
    output: str = ""
    redis_url: str = ""
    sandbox_urls: list[str] = field(default_factory=list)
    generator_url: str | None = None
    reward_url: str | None = None
    sandbox: SandboxFacts | None = None
    supervisor: Supervisor = field(default_factory=Supervisor)
    background: Background | None = None

    def port_file(self, name: str) -> Path:
        """Where a service writes its port when it listens."""
        return self.folder / f"{name}.port"

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
    reward: Callable[[Path], ServiceLaunch] | None = None,
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
        reward: Makes the launch settings of a reward service, given the stack's folder. It is
            started in place of the aggregator, because there is no run to publish.

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
        stack = EmbeddedStack(folder, output.shown, sandbox_urls=[*sandboxes])
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
    reward: Callable[[Path], ServiceLaunch] | None,
) -> None:
    """Start Redis, sandbox and generator side by side, then the judges and the aggregator.

    Nobody waits for the last two: jobs wait in the queue until the first judge takes one.
    """
    data = stack.folder / "redis"
    append_only.check_complete(data)
    redis, stack.redis_url = launch_redis(
        data, stack.folder / "logs" / "redis.log", base_environment(), lock
    )
    stack.supervisor.children.append(redis)
    started: dict[str, ChildProcess] = {}
    launches = [] if stack.sandbox_urls else [sandbox_launch()]
    if generator:
        launches.append(generator_launch(config, stack.folder))
    for launch in launches:
        started[launch.module] = _start_service(stack, launch)
    meanwhile()
    preload()
    try:
        wait_for_answer(redis, stack.redis_url)
    except ServiceError as error:
        raise append_only.explain(data, error) from None
    _await_sandbox(stack, started.get("sandbox"))
    _start_judges(stack, config, aggregate=reward is None)
    if reward is not None:
        _start_reward(stack, reward(stack.folder))
    if generator:
        timeout = launches[-1].ready_timeout
        stack.generator_url = _url(started["generator"])
        _ready(started["generator"], stack.generator_url, timeout)


def _await_sandbox(stack: EmbeddedStack, child: ChildProcess | None) -> None:
    if child is None:
        return
    url = _url(child)
    stack.sandbox_urls = [url]
    stack.sandbox = SandboxFacts.model_validate_json(_ready(child, url))


def _start_judges(stack: EmbeddedStack, config: Config, *, aggregate: bool) -> None:
    """Start a judge in this process with the aggregator, and further judges as processes."""
    workers = config.judge.workers or 1
    # Two completions per slot of the sandbox: one runs, and one is being prepared or checked.
    places = (stack.sandbox and stack.sandbox.concurrency) or 0
    concurrency = os.environ.get(_JUDGE_CONCURRENCY) or str(
        max(_LEAST_CONCURRENCY, math.ceil(2 * places / workers))
    )
    settings = _ledger_and_sandboxes(stack) | {
        _JUDGE_CONCURRENCY: concurrency,
        "PLUMBLINE_JUDGE_DRAIN_SECONDS": str(GRACE_SECONDS / 2),  # killed, the jobs would be lost
    }
    for number in range(2, workers + 1):
        _start_service(stack, ServiceLaunch("judge", settings), f"judge-{number}")
    services: list[Service] = [partial(run_judge, settings)]
    if aggregate:
        port_file = stack.port_file("aggregator")
        port_file.unlink(missing_ok=True)
        services.append(partial(run_aggregator, stack.redis_url, stack.folder / "index", port_file))
    stack.background = Background(*services)


def _ledger_and_sandboxes(stack: EmbeddedStack) -> dict[str, str]:
    """Settings of the services that use them."""
    own = {} if stack.sandbox is None else NO_SANDBOX_TOKEN
    urls = ",".join(stack.sandbox_urls)
    return {"REDIS_URL": stack.redis_url, "SANDBOX_URLS": urls, **own}


def _start_reward(stack: EmbeddedStack, launch: ServiceLaunch) -> None:
    settings = launch.settings | _ledger_and_sandboxes(stack)
    if stack.sandbox is not None and stack.sandbox.environment is not None:
        settings["PLUMBLINE_REWARD_ENVIRONMENT"] = stack.sandbox.environment.fingerprint
    child = _start_service(stack, replace(launch, settings=settings))
    stack.reward_url = _url(child)
    _ready(child, stack.reward_url, launch.ready_timeout)


def _start_service(
    stack: EmbeddedStack, launch: ServiceLaunch, name: str | None = None
) -> ChildProcess:
    name = name or launch.module
    environment = base_environment(*OWN_SECRETS[launch.module]) | launch.settings
    environment |= {"HOST": "127.0.0.1", "PORT": str(launch.port)}
    child = ChildProcess(
        name,
        [launch.python, "-m", f"services.{launch.module}"],
        stack.folder / "logs" / f"{name}.log",
        environment,
        port_file=stack.port_file(name),
        death_signal=launch.death_signal,
        grace=launch.grace,
    )
    if launch.module == "sandbox":
        child.command = SANDBOX_COMMAND
        settings = {"log": str(child.log.absolute()), "environment": child.launch_environment()}
        child.stdin = json.dumps(settings)
        child.process = waiting_sandbox()
    return stack.supervisor.start(child)


def _url(child: ChildProcess) -> str:
    return f"http://127.0.0.1:{child.wait_for_port()}"


def _ready(child: ChildProcess, url: str, timeout: float = 60.0) -> bytes:
    """Wait until /readyz succeeds; return the service's report, which is JSON."""
    report = bytearray()

    def ready() -> bool:
        try:
            with open_directly(f"{url}/readyz", timeout=5) as response:
                report[:] = response.read(2**20)
        except (OSError, ValueError):
            return False
        return True

    wait_until(ready, child, timeout)
    return bytes(report)


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
