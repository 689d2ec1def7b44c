"""Execution of a run for `plumb run`, `judge` and `rejudge`: services, session, exit code."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from redis import Redis
from redis.exceptions import OutOfMemoryError, RedisError

from services.cli.console import say, stdout_console
from services.cli.display import ProgressDisplay, print_summary
from services.cli.embedded.stack import EmbeddedStack, open_stack, while_restarted
from services.runner.outages import Check, JudgesCheck, watch_outages
from services.runner.preflight import Needs, needs_of
from services.runner.run import Run, Source
from services.runner.session import Session, claim_output, identify
from services.runner.sources import RecordedSource, generator_source
from services.runner.tokens import TokenCounter, open_counter
from shared.analysis.acceptance import looks_random
from shared.artifacts import SUMMARY, OutputFolder
from shared.certificates import certified_tests
from shared.config import Config
from shared.datasets import parquet_files
from shared.errors import (
    ConfigError,
    IncompleteRunError,
    InterruptedRunError,
    OutputError,
    ServiceError,
    UnavailableError,
    UntrustedRunError,
)
from shared.finished_run import open_run
from shared.ledger import Ledger, connect, ping_error
from shared.prompts import prompt_facts
from shared.run_record import Provenance, RunPlan, RunState, SandboxFacts
from shared.schemas import Problem, SampleId
from shared.service.access import token_from
from shared.service.processes import with_watch
from shared.text import split_urls

if TYPE_CHECKING:
    from services.runner.client import GeneratorClient
    from services.runner.until_decided import UntilDecided
    from services.training.verl_tables import ResponsesFile

WAIT_VARIABLE = "PLUMBLINE_WAIT_SECONDS"
# The check can fail although the run would succeed: in some networks only judges reach a sandbox.
_SANDBOX_CHECKS = ("sandboxes", "none")
# About one a second: more than fit into the patience of a connection. The Redis of an embedded run
# has fewer, because nobody starts it again once its supervisor has given up.
_RETRIES_OF_EXTERNAL = 1000
T = TypeVar("T")


@dataclass(frozen=True)
class RunRequest:
    """A run as requested by a command.

    ``completions`` replaces the generator as the source of completions. ``source`` identifies
    completions that the config does not identify, as part of the run's fingerprint. ``sandboxes``
    are the addresses on the command line, by default those in SANDBOX_URLS.
    ``quiet`` leaves out the summary at the end. ``early_stop`` ends the run before all samples have
    a verdict.
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
    sandboxes: Sequence[str] = ()
    quiet: bool = False
    early_stop: "UntilDecided | None" = None

    @property
    def own_generator(self) -> bool:
        """Whether the run starts its own generator instead of using the one at base_urls."""
        backend = self.config.generation.backend
        return self.completions is None and self.embedded and backend != "openai"

    @property
    def sandbox_urls(self) -> list[str]:
        """URLs of sandboxes that exist; empty if an embedded stack brings its own."""
        return [*self.sandboxes] or split_urls(os.environ.get("SANDBOX_URLS", ""))


def execute(request: RunRequest) -> None:
    """Execute a run and print its results.

    Raises:
        PlumblineError: The run cannot start or finish; :class:`IncompleteRunError` if it finished
            but some samples have no verdict.
    """
    try:
        _execute(request)
    except KeyboardInterrupt:
        raise InterruptedRunError("interrupted; repeat the command to resume") from None


def _execute(request: RunRequest) -> None:
    config = request.config
    counter, responses = open_counter(config), _responses_file(request)
    folder = OutputFolder(config.output_dir)
    identity = identify(config, request.plan, folder, request.source)
    identity = claim_output(folder, identity, force=request.force)
    if _is_stopped(folder, force=request.force):
        finished = open_run(folder.url)
        print_summary(finished)
        say("finished: it stopped early; --force starts over")
        return
    made = "generated" if request.completions is None else "loaded"
    with ProgressDisplay(stdout_console(), made) as progress:
        progress.planned(request.plan)
        for note in request.notes:
            progress.note(note)
        with _services(request, folder, progress) as (redis, stack):
            session = Session(redis, identity)
            try:
                work = partial(_run_session, request, folder, session, stack, progress, counter)
                asyncio.run(_watched(stack, work))
            except OutOfMemoryError as error:
                raise ServiceError(
                    f"Redis is out of memory ({error}); raise its maxmemory and repeat the command "
                    "to resume"
                ) from None
            except RedisError as error:
                raise ServiceError(
                    f"lost the connection to Redis: {error}; repeat the command to resume"
                ) from None
            finally:
                with suppress(RedisError):
                    # Nobody starts it again by now; its retries would last for a minute.
                    if ping_error(redis) is None:
                        session.leave()
    # Imported here because a run prints them when its work is done.
    from services.cli.accept import print_warnings

    finished = open_run(folder.url)
    if not request.quiet:
        print_summary(finished)
        print_warnings(finished)
    if responses is not None:
        say(responses.write(finished, request.problems))
    record = finished.record
    if record.distrust:
        raise UntrustedRunError(
            f"untrusted: {_first(record.distrust)}; fix the sandbox, check it with plumb doctor, "
            "and judge again"
        )
    if not record.complete:
        reasons = sorted({entry.reason or "unknown" for entry in record.unjudged})
        raise IncompleteRunError(
            f"incomplete: {record.samples_unjudged} of {record.samples} samples have no verdict "
            f"({_first(reasons)}); repeat the command to retry them"
        )


def _first(reasons: Sequence[str]) -> str:
    return "; ".join(reasons[:3]) + ("; …" if len(reasons) > 3 else "")


def _is_stopped(folder: OutputFolder, *, force: bool) -> bool:
    """Whether the folder has a complete run that stopped early, to which nothing is added."""
    if force or not folder.exists(SUMMARY):
        return False
    record = open_run(folder.url).record
    return record.stopped is not None and record.state is RunState.COMPLETE


def _responses_file(request: RunRequest) -> "ResponsesFile | None":
    """The file of ``data.output_path``.

    Raises:
        OutputError: It could not be written, or is a file that the run reads.
    """
    if request.config.data.output_path is None:
        return None
    # Imported here because pandas takes half a second.
    from services.training.verl_tables import ResponsesFile

    facts = request.provenance
    return ResponsesFile(request.config, [*(facts.data_files or []), facts.completions or ""])


# Services


def waited_for(check: Callable[[], T], progress: ProgressDisplay, poll_seconds: float = 2.0) -> T:
    """Retry the check of a dependency that may still be starting; each new reason is a note.

    ``PLUMBLINE_WAIT_SECONDS`` limits the time; by default nothing is retried.

    Raises:
        ConfigError: The variable is not a number of seconds.
        UnavailableError: The time has passed.
    """
    end, reason = time.monotonic() + _wait_seconds(), ""
    while True:
        try:
            return check()
        except UnavailableError as error:
            if time.monotonic() >= end:
                raise
            if str(error) != reason:
                reason = str(error)
                progress.note(f"waiting: {reason}")
        time.sleep(poll_seconds)


def _wait_seconds() -> float:
    text = os.environ.get(WAIT_VARIABLE) or "0"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"{WAIT_VARIABLE} is {text!r}; give a number of seconds")
    return seconds


@contextmanager
def _services(
    request: RunRequest, folder: OutputFolder, progress: ProgressDisplay
) -> Iterator[tuple[Redis, EmbeddedStack | None]]:
    """Wait for the external services or start the embedded ones; yields Redis and the stack."""
    config = request.config
    if request.completions is None and not request.own_generator:
        urls = config.generation.base_urls
        waited_for(lambda: asyncio.run(check_generator(config, urls)), progress)
    needs = needs_of(config, request.problems)
    if not request.embedded:
        yield _external(request, progress, needs), None
        return
    if sandboxes := request.sandbox_urls:
        asyncio.run(_check_sandboxes(sandboxes, needs))
    if request.own_generator and config.generation.backend == "verl":
        progress.note("starting verl's replicas; this takes minutes with a large model")
    with open_stack(
        config,
        folder,
        force=request.force,
        generator=request.own_generator,
        sandboxes=sandboxes,
        meanwhile=() if request.completions is not None else ("services.runner.client",),
    ) as stack:
        progress.page_at(stack.page_port)
        for warning in stack.sandbox.warnings if stack.sandbox else ():
            progress.note(f"warning: {warning}")
        if needs and not sandboxes:
            # Imported here because it needs aiohttp, and an embedded run often needs no check.
            from services.runner.sandboxes import check_needs

            check = partial(check_needs, stack.sandbox_urls, needs)
            asyncio.run(_watched(stack, while_restarted(check)))
        connecting = partial(asyncio.to_thread, connect, stack.redis_url)
        redis = asyncio.run(_watched(stack, while_restarted(connecting)))
        yield redis, stack


async def _check_sandboxes(urls: Sequence[str], needs: Needs) -> None:
    # Imported here because an embedded run has no external sandbox.
    from services.runner.sandboxes import check_needs, check_sandboxes
    from shared.service.settings import SandboxClientSettings, load_settings

    headers = load_settings(SandboxClientSettings).sandbox_headers
    await check_sandboxes(urls, headers=headers)
    if needs:
        await check_needs(urls, needs, headers=headers)


def _external(request: RunRequest, progress: ProgressDisplay, needs: Needs) -> Redis:
    """Connect to an external Redis, after its sandboxes are available."""
    check = os.environ.get("PLUMBLINE_SANDBOX_CHECK") or "sandboxes"
    if check not in _SANDBOX_CHECKS:
        choices = ", ".join(_SANDBOX_CHECKS)
        raise ConfigError(f"PLUMBLINE_SANDBOX_CHECK is {check!r}; give one of {choices}")
    if check == "sandboxes":
        urls = request.sandbox_urls or request.config.sandbox_urls
        waited_for(lambda: asyncio.run(_check_sandboxes(urls, needs)), progress)
    # Imported here because an embedded run knows its Redis, and pydantic-settings takes long.
    from shared.service.settings import RedisSettings, load_settings

    url = load_settings(RedisSettings).redis_url
    return waited_for(lambda: connect(url, retries=_RETRIES_OF_EXTERNAL), progress)


async def check_generator(config: Config, urls: Sequence[str]) -> None:
    """Check that the generator's servers answer and offer one model.

    Raises:
        ServiceError: They do not.
    """
    async with _client(config, urls) as client:
        await client.check()


# Session


async def _run_session(
    request: RunRequest,
    folder: OutputFolder,
    session: Session,
    stack: EmbeddedStack | None,
    progress: ProgressDisplay,
    counter: TokenCounter | None,
) -> None:
    """Enter the session and run the loop until the artifacts are published."""
    async with _open_source(request, session.ledger.run, stack, progress) as opened:
        source, provenance, client = opened
        if counter is not None:
            source = counter.counting(source)
            provenance = provenance.model_copy(update={"tokenizer": counter.record})
        hashes = None if request.completions is None else request.completions.hashes
        if hashes is not None and not request.force:
            await asyncio.to_thread(check_completions, session.ledger, hashes, folder)
        await asyncio.to_thread(
            session.enter,
            # The judges of an embedded stack get their sandboxes from the environment.
            request.config.without_secrets() if stack else request.config,
            request.problems,
            folder,
            force=request.force,
            provenance=provenance,
        )
        meta = await asyncio.to_thread(session.ledger.meta)
        plan, early_stop = request.plan, request.early_stop
        if meta is not None and meta.stopped:  # killed before it was published
            plan, early_stop = session.ledger.plan() or plan, None
        run = Run(plan, session, source, progress, early_stop=early_stop)
        redis = session.ledger.redis
        judges = JudgesCheck(redis, lambda: run.unjudged, lambda: run.ungenerated + run.unjudged)
        with closing(judges):
            checks: list[Check] = [judges]
            if client is not None:
                checks.append(lambda: client.trouble(run.ungenerated))
            await with_watch(run.complete, partial(watch_outages, progress, checks))


def check_completions(ledger: Ledger, hashes: Mapping[SampleId, str], folder: OutputFolder) -> None:
    """Refuse to mix completions with others than those with these SHA-256.

    Raises:
        OutputError: The ledger has some.
    """
    differing = sum(hashes.get(sample, sha) != sha for sample, sha in ledger.completed().items())
    if differing:
        raise OutputError(
            f"{folder.shown} holds other completions: {differing} of {len(hashes)} "
            "completions differ; another --output, or --force to replace them"
        )


@asynccontextmanager
async def _open_source(
    request: RunRequest, run: str, stack: EmbeddedStack | None, progress: ProgressDisplay
) -> AsyncIterator[tuple[Source, Provenance, "GeneratorClient | None"]]:
    """Open the source of the completions.

    Yields it with the session's provenance, and the client that it may have.
    """
    config = request.config
    # An external sandbox reports nothing, and replaces the facts of an earlier session's.
    sandbox = (stack and stack.sandbox) or SandboxFacts()
    files = [file for path in request.provenance.data_files or () for file in parquet_files(path)]
    certificates = certified_tests(files, request.problems, config.judge)
    facts = {"sandbox": sandbox, "certificates": certificates or None}
    provenance = request.provenance.model_copy(update=facts)
    if request.completions is not None:
        yield request.completions, provenance, None
        return
    own = stack and stack.generator_url
    urls = [own] if own else config.generation.base_urls
    async with _client(config, urls, own=bool(own)) as client:
        prompts = prompt_facts(request.problems, config)
        model = await (while_restarted(client.check) if own else client.check)()
        info = await client.info()
        if looks_random(info):
            if not config.generation.verl.allow_random_weights:
                raise ConfigError(
                    "the generator reports that its model looks randomly initialized (self_check "
                    "in its /info); check its weights, or set "
                    "generation.verl.allow_random_weights=true"
                )
            progress.note("warning: the model looks randomly initialized; its results mean nothing")
        generator = {
            "model": model,
            "generator": info,
            "prompts": prompts.prompts,
            "system_prompt": prompts.system_prompt,
        }
        source = generator_source(client, config, request.problems, run)
        yield source, provenance.model_copy(update=generator), client


def _client(config: Config, urls: Sequence[str], *, own: bool = False) -> "GeneratorClient":
    """The client of servers; one of the run's own requires no key."""
    # Imported here because `plumb judge` makes no requests, and aiohttp takes long.
    from services.runner.client import GeneratorClient

    try:
        key = None if own else token_from(os.environ, config.generation.api_key_env)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return GeneratorClient(urls, config.generation, key)


async def _watched(stack: EmbeddedStack | None, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work while services of the stack that die are started again.

    Of an exception group only the first error is raised.
    """
    try:
        return await (with_watch(work, stack.watch) if stack else work())
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
