"""Execution of a run request: start or reach the stack, enter a session, report the outcome."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from redis import Redis
from redis.exceptions import OutOfMemoryError, RedisError

from services.cli.display import ProgressDisplay, stdout_console
from services.cli.embedded.stack import EmbeddedStack, open_stack
from services.cli.summary import print_summary
from services.cli.waiting import Patience
from services.runner.client import GeneratorClient
from services.runner.preflight import check_judges, check_sandboxes
from services.runner.prompts import prompt_facts
from services.runner.run import Run, Source
from services.runner.session import Session, claim_output, identify
from services.runner.sources import GeneratorSource, RecordedSource
from shared.artifacts import OutputFolder
from shared.config import Config
from shared.errors import ConfigError, IncompleteRunError, InterruptedRunError, ServiceError
from shared.finished_run import open_run
from shared.ledger import connect
from shared.plan import RunPlan
from shared.run_record import Provenance, RunRecord, SandboxFacts
from shared.schemas import Problem
from shared.service.settings import RedisSettings, load_settings

# There are networks in which only judges reach a sandbox, and none of them until there is work.
_SANDBOX_CHECKS = ("sandboxes", "judges", "none")


@dataclass(frozen=True)
class RunRequest:
    """A run as the user asked for it.

    ``completions`` is where completions come from if not from a generator; ``source`` names in
    the run's identity what the config does not.
    """

    config: Config
    problems: Sequence[Problem]
    plan: RunPlan
    embedded: bool
    force: bool
    completions: RecordedSource | None = None
    source: str = ""
    provenance: Provenance = field(default_factory=Provenance)
    notes: Sequence[str] = ()

    @property
    def own_generator(self) -> bool:
        """Whether the run starts its generator itself, instead of asking the one at base_urls."""
        backend = self.config.generation.backend
        return self.completions is None and self.embedded and backend != "openai"


def execute(request: RunRequest) -> None:
    """Carry out a run and print what came of it.

    Raises:
        PlumblineError: It cannot be begun or finished; :class:`IncompleteRunError` where it was
            finished but samples are left without a verdict.
    """
    config = request.config
    folder = OutputFolder(config.output_dir)
    identity = identify(config, request.plan, folder, request.source)
    identity = claim_output(folder, identity, force=request.force)
    console = stdout_console()
    with _terminable(), ProgressDisplay(console) as progress:
        progress.planned(request.plan)
        for note in request.notes:
            progress.note(note)
        with _services(request, folder, progress) as (redis, stack):
            session = Session(redis, identity)
            try:
                asyncio.run(_complete(request, folder, session, stack, progress))
            except OutOfMemoryError as error:
                raise ServiceError(
                    f"Redis has no memory left ({error}); give it more (maxmemory), and the same "
                    "command goes on from here"
                ) from None
            except RedisError as error:
                raise ServiceError(
                    f"Redis went away: {error}; when it is back, the same command goes on from here"
                ) from None
            except KeyboardInterrupt:
                raise InterruptedRunError(
                    "interrupted; the same command goes on from here"
                ) from None
            finally:
                with suppress(RedisError):
                    session.leave()
    finished = open_run(folder.url)
    print_summary(console, finished.summary, finished.run)
    if not finished.record.complete:
        raise IncompleteRunError(_missing_verdicts(finished.record))


@contextmanager
def _services(
    request: RunRequest, folder: OutputFolder, progress: ProgressDisplay
) -> Iterator[tuple[Redis, EmbeddedStack | None]]:
    config = request.config
    patience = Patience(progress)
    if request.completions is None and not request.own_generator:
        urls = config.generation.base_urls
        patience.wait(lambda: asyncio.run(_check_generator(config, urls)))
    if not request.embedded:
        yield _external(config, patience), None
        return
    if given := os.environ.get("SANDBOX_URLS"):
        asyncio.run(check_sandboxes(given.split(",")))
    if request.own_generator and config.generation.backend == "verl":
        progress.note("starting verl's replicas, which takes minutes with a large model")
    with open_stack(config, folder, force=request.force, generator=request.own_generator) as stack:
        if warning := stack.sandbox.get("warning"):
            progress.note(f"warning: {warning}")
        yield connect(stack.redis_url), stack


def _external(config: Config, patience: Patience) -> Redis:
    """Redis of a stack that is there, once all of it is."""
    check = os.environ.get("PLUMBLINE_SANDBOX_CHECK") or "sandboxes"
    if check not in _SANDBOX_CHECKS:
        one_of = ", ".join(_SANDBOX_CHECKS)
        raise ConfigError(f"PLUMBLINE_SANDBOX_CHECK is {check!r}; give one of {one_of}")
    if check == "sandboxes":
        given = os.environ.get("SANDBOX_URLS")
        urls = given.split(",") if given else config.sandbox_urls
        patience.wait(lambda: asyncio.run(check_sandboxes(urls)))
    url = load_settings(RedisSettings).redis_url
    redis = patience.wait(lambda: connect(url))
    if check == "judges":
        patience.wait(lambda: check_judges(redis))
    return redis


async def _complete(
    request: RunRequest,
    folder: OutputFolder,
    session: Session,
    stack: EmbeddedStack | None,
    progress: ProgressDisplay,
) -> None:
    config = request.config
    sandbox = SandboxFacts.model_validate(stack.sandbox) if stack else None
    facts = request.provenance.model_copy(update={"sandbox": sandbox})
    async with AsyncExitStack() as parts:
        source: Source | None = request.completions
        hashes = request.completions.hashes() if request.completions else None
        if source is None:
            urls = [stack.generator_url] if stack and stack.generator_url else None
            client = await parts.enter_async_context(
                _client(config, urls or config.generation.base_urls)
            )
            facts = Provenance(
                **{
                    **dict(facts),
                    "model": await client.check(),
                    "generator": await client.info(),
                    **prompt_facts(request.problems, config.data),
                }
            )
            source = GeneratorSource(client, config, request.problems, session.ledger.run)
        await asyncio.to_thread(
            session.enter,
            config,
            request.problems,
            folder,
            force=request.force,
            provenance=facts,
        )
        progress.started()
        run = Run(config, request.plan, session, source, progress, hashes)
        await _beside(run.complete, stack.watch if stack else None)


async def _beside(work: Callable[[], Any], watch: Callable[[], Any] | None) -> None:
    """Run ``work`` to its end; an error of ``watch`` ends it early."""
    main = asyncio.ensure_future(work())
    side = asyncio.ensure_future(watch()) if watch else None
    waiting = {main, side} if side else {main}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if side and side.done():
            side.result()
        await _without_group(main)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _without_group(task: "asyncio.Future[None]") -> None:
    """Await a task group's work; of the errors that it ended with, the first one is raised."""
    try:
        await task
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


def _client(config: Config, urls: Sequence[str]) -> GeneratorClient:
    generation = config.generation
    return GeneratorClient(
        urls,
        generation.model,
        api_key=os.environ.get(generation.api_key_env),
        concurrency=generation.concurrency,
        request_timeout=generation.request_timeout,
        deadline=generation.deadline,
        max_attempts=generation.max_attempts,
    )


async def _check_generator(config: Config, urls: Sequence[str]) -> None:
    async with _client(config, urls) as client:
        await client.check()


def _missing_verdicts(run: RunRecord) -> str:
    reasons = sorted({entry.reason or "unknown" for entry in run.unjudged})
    shown = "; ".join(reasons[:3]) + ("; …" if len(reasons) > 3 else "")
    return (
        f"incomplete: {run.samples_unjudged} of {run.samples} samples have no verdict "
        f"({shown}); the same command tries them again"
    )


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: in request."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
