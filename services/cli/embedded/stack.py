"""Embedded stack: starts the services of one run in order, waits for readiness, shuts them down.

Judge and aggregator are in an event loop of a thread of the command. Processes of their own would
import the same libraries for longer than a short run takes to judge.
"""

import asyncio
import fcntl
import hashlib
import logging
import math
import os
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tenacity import Retrying, retry, retry_if_exception_type, stop_after_delay, wait_fixed

from services.cli.embedded import services
from services.cli.embedded.environment import NO_SANDBOX_TOKEN, base_environment
from services.cli.embedded.services import GRACE_SECONDS, ChildProcess
from shared.artifacts import OutputFolder
from shared.config import Config
from shared.errors import OutputError, PlumblineError, ServiceError, UnavailableError
from shared.files import remove_abandoned, write_text
from shared.ledger import connect
from shared.run_record import SandboxFacts
from shared.service.logs import configure_logging, get_logger
from shared.service.settings import load_settings
from shared.text import split_urls

if TYPE_CHECKING:
    from aiohttp import web

log = get_logger(__name__)

STATE = ".plumbline"
_POLL = 0.2  # seconds between two looks at the services
_JUDGE_CONCURRENCY = "PLUMBLINE_JUDGE_CONCURRENCY"
_LEAST_CONCURRENCY = 16
_STOP_SECONDS = 40.0  # a judge drains and gives up on Redis before


@dataclass
class EmbeddedStack:
    """The running services and their base URLs.

    Attributes:
        folder: State folder with Redis' data, the aggregator's index and the logs.
        sandbox_urls: External sandboxes, or the embedded one.
        sandbox: The embedded sandbox's own report at /readyz; None for external ones.
        children: The child processes, Redis first.
        background: The services in this process.
    """

    folder: Path
    redis_url: str = ""
    sandbox_urls: list[str] = field(default_factory=list)
    generator_url: str | None = None
    sandbox: SandboxFacts | None = None
    children: list[ChildProcess] = field(default_factory=list)
    background: "Background | None" = None

    @property
    def page_port(self) -> Path:
        """File in which the aggregator writes its port when it listens."""
        return self.folder / "aggregator.port"

    def client_settings(self) -> dict[str, str]:
        """Settings of the services that use Redis and the sandboxes."""
        own = {} if self.sandbox is None else NO_SANDBOX_TOKEN
        urls = ",".join(self.sandbox_urls)
        return {"REDIS_URL": self.redis_url, "SANDBOX_URLS": urls, **own}

    def start(self, child: ChildProcess) -> ChildProcess:
        """Start a child and supervise it; a ServiceError if it cannot be executed."""
        child.start()
        self.children.append(child)
        return child

    def restart_dead(self) -> None:
        """Restart children that have died; a ServiceError if one cannot be kept alive."""
        for child in self.children:
            child.restart_if_dead()

    async def watch(self) -> None:
        """Restart child processes that die, until cancelled.

        Raises:
            PlumblineError: A child cannot be kept alive, or a service of this process has failed.
        """
        while True:
            self.restart_dead()
            if self.background is not None:
                self.background.check()
            await asyncio.sleep(_POLL)

    def stop(self) -> None:
        """Shut all services down gracefully, the children in parallel, Redis last."""
        if self.background is not None:
            self.background.stop()
        for child in self.children[1:]:
            if child.running and child.process is not None:
                child.process.terminate()
        began = time.monotonic()
        for child in reversed(self.children):
            first = child is self.children[0]
            child.stop(child.grace if first else max(0.1, began + child.grace - time.monotonic()))


@contextmanager
def open_stack(
    config: Config,
    output: OutputFolder,
    *,
    force: bool,
    generator: bool,
    sandboxes: Sequence[str] | None = None,
    meanwhile: Sequence[str] = (),
    aggregate: bool = True,
) -> Iterator[EmbeddedStack]:
    """Start the services of a run, and shut them down when the block ends.

    Args:
        config: The run's config.
        output: Its output folder; a local one contains the stack's data and logs.
        force: Delete Redis' data and the logs of earlier runs first.
        generator: Whether to start the config's generator backend.
        sandboxes: URLs of sandboxes that take the place of an embedded one; None for those in
            SANDBOX_URLS.
        meanwhile: Modules of the command that are imported while the services start.
        aggregate: Whether to start the aggregator, which publishes runs.

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
        with logging_to(folder / "logs" / "plumb.log"):
            try:
                _start(stack, config, lock, meanwhile, generator=generator, aggregate=aggregate)
                yield stack
            finally:
                stack.stop()


def _start(
    stack: EmbeddedStack,
    config: Config,
    lock: int,
    meanwhile: Sequence[str],
    *,
    generator: bool,
    aggregate: bool,
) -> None:
    """Start Redis, sandbox and generator side by side, then the judges and the aggregator.

    Nobody waits for the last two: jobs wait in the queue until the first judge takes one.
    """
    folder, start = stack.folder, stack.start
    data = folder / "redis"
    redis_log = folder / "logs" / "redis.log"
    redis, stack.redis_url = services.redis_server(data, redis_log, base_environment(), lock)
    start(redis)
    sandbox = None if stack.sandbox_urls else start(services.sandbox(folder))
    engine = start(services.generator(folder, config)) if generator else None
    for module in (*meanwhile, "services.judge.worker"):
        import_module(module)
    try:
        services.wait_for_redis(redis, stack.redis_url)
    except ServiceError as error:
        raise _of_damaged_files(data, error) from None
    if sandbox is not None:
        url = sandbox.wait_for_url()
        stack.sandbox_urls = [url]
        stack.sandbox = SandboxFacts.model_validate_json(sandbox.wait_for_report(url))
    _start_judges(stack, config, aggregate=aggregate)
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
        stack.start(services.service(stack.folder, "judge", settings, name=f"judge-{number}"))
    tasks: list[BackgroundService] = [partial(_run_judge, settings)]
    if aggregate:
        stack.page_port.unlink(missing_ok=True)
        index = stack.folder / "index"
        tasks.append(partial(_run_aggregator, stack.redis_url, index, stack.page_port))
    stack.background = Background(*tasks)


def state_folder(output: OutputFolder) -> Path:
    """The folder of Redis' data, index and logs of a stack with this output."""
    if output.local:
        return Path(output.path) / STATE
    # Redis' data on a remote filesystem would be slow and could not be locked.
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "plumbline" / hashlib.sha256(output.shown.encode()).hexdigest()[:16]


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Write this process's log, which has those of judge and aggregator, to a file.

    What finds no space on a full disk is lost: the error that ends the command is another one.
    """
    file = path.open("a", encoding="utf-8")
    logging.raiseExceptions = False
    configure_logging("plumb", os.environ.get("LOG_LEVEL") or "INFO", file)
    try:
        yield
    finally:
        configure_logging("plumb", "WARNING", sys.stderr)
        logging.raiseExceptions = True
        with suppress(OSError):
            file.close()


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


# Services of this process

# Works until the event is set.
BackgroundService = Callable[[asyncio.Event], Awaitable[None]]


class Background:
    """A thread in which services work until :meth:`stop`, or until one of them fails."""

    def __init__(self, *services: BackgroundService) -> None:
        # Imported here because the runner's image has no judge. It is faster than asyncio's loop.
        import uvloop

        self._services = services
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._error: PlumblineError | None = None
        self._thread = threading.Thread(target=self._run, name="services", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Check that the services work.

        Raises:
            PlumblineError: One of them has failed.
        """
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop the services, and wait until they have ended, or for a limited time.

        Without Redis a judge would retry its heartbeats; the thread ends with the process.
        """
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        await asyncio.gather(*map(self._work, self._services))

    async def _work(self, service: BackgroundService) -> None:
        try:
            await service(self._stop)
        except PlumblineError as error:
            self._error = error
        except Exception as error:
            log.exception("a service of this command failed")
            self._error = ServiceError(f"judging failed: {error!r}; repeat the command to resume")
        finally:
            self._stop.set()


# Decorator of what asks a service: again while a service that has died is restarted.
while_restarted = retry(
    retry=retry_if_exception_type(UnavailableError),
    stop=stop_after_delay(60.0),
    wait=wait_fixed(0.1),
    reraise=True,
)
_connect = while_restarted(connect)


async def _run_judge(settings: Mapping[str, object], stop: asyncio.Event) -> None:
    """Judge until the event is set; the settings are those of ``JudgeSettings``."""
    from services.judge.jobs import JudgeSettings
    from services.judge.worker import JudgeProcess

    loaded = load_settings(JudgeSettings, **settings)
    redis = await asyncio.to_thread(_connect, loaded.redis_url)
    await JudgeProcess(redis, loaded, f"judge-{os.getpid()}").serve(stop)


async def _run_aggregator(
    redis_url: str, index: Path, port_file: Path, stop: asyncio.Event
) -> None:
    """Index and publish runs, and serve the page, until the event is set."""
    # Imported in another thread, because verdicts need not wait for it.
    aggregator = await asyncio.to_thread(import_module, "services.aggregator.__main__")
    from services.aggregator.settings import AggregatorSettings
    from shared.service.server import listening

    settings = load_settings(AggregatorSettings, redis_url=redis_url, index_dir=index)

    async def serve_page(app: "web.Application") -> None:
        async with listening(app, "127.0.0.1", 0) as port:
            write_text(port_file, f"{port}\n")
            await stop.wait()

    redis = await asyncio.to_thread(_connect, redis_url)
    await aggregator.aggregate(settings, redis, serve_page)
