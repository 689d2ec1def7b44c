"""Judging of batches, with the sandboxes, configs and problems that a process keeps."""

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NoReturn

from pydantic import Field
from redis.exceptions import RedisError
from rq.worker import BaseWorker

from services.judge.calls import Task, compute
from services.judge.canaries import CanaryProfile, CanaryRounds
from services.judge.judging import judge
from services.judge.metrics import JudgeMetrics
from services.judge.permits import urgent
from services.judge.sandbox import Attempts, SandboxClient, SandboxUnavailableError, open_client
from services.judge.special_judge import CheckerFailedError
from services.judge.verdict import Judgement, case_results, to_verdict
from shared.case_records import SampleCases
from shared.config import RULES, Config
from shared.config_files import validate_document
from shared.errors import ConfigError, PlumblineError
from shared.ledger import keys
from shared.ledger.ledger import unjudged_verdict, write_verdict
from shared.ledger.pipelined import Command, PipelinedRedis
from shared.ledger.queue import TROUBLE, Batch
from shared.ledger.runs import problem_key, text
from shared.schemas import (
    Generation,
    InfraFailure,
    Problem,
    RecordedCases,
    SampleId,
    Verdict,
)
from shared.service.logs import get_logger
from shared.service.settings import RedisSettings, SandboxClientSettings, ServiceSettings
from shared.statuses import FailureKind
from shared.text import unpack
from shared.versions import release

log = get_logger(__name__)

_PROBLEMS_KEPT = 32


class JudgeSettings(ServiceSettings, RedisSettings, SandboxClientSettings):
    """Settings of a judge worker."""

    name: str = Field(default="", validation_alias="PLUMBLINE_JUDGE_NAME")
    """Name of the worker; by default derived from host and process."""
    concurrency: int = Field(default=16, ge=1, validation_alias="PLUMBLINE_JUDGE_CONCURRENCY")
    """Completions that the process judges at once, of evaluations and of rewards each."""
    lease_ttl: int = Field(default=10, ge=1, validation_alias="PLUMBLINE_JUDGE_LEASE_TTL")
    """Seconds until RQ delivers a job of a dead judge again."""

    drain_seconds: float | None = Field(
        default=None, gt=0, validation_alias="PLUMBLINE_JUDGE_DRAIN_SECONDS"
    )
    """Seconds after SIGTERM until the jobs that are not finished return to the queue; by default
    they are all finished."""


class Lane:
    """Completions of one queue: so many are judged at once, and there is room for the next jobs.

    There is room while the process has fewer completions than twice what it judges at once, so that
    the next ones are there when places become free. Rewards and evaluations have a lane each, so
    neither waits for the other's places.
    """

    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.room = threading.Event()  # threads wait for it
        self.room.set()
        self._limit = 2 * places
        self._count = 0

    def count(self, by: int) -> None:
        """Count completions that were taken or, below 0, judged."""
        self._count += by
        (self.room.set if self._count < self._limit else self.room.clear)()


def lanes_of(places: int) -> dict[str, Lane]:
    """Return a lane for each queue."""
    return {queue: Lane(places) for queue in (keys.REWARD_QUEUE, keys.JUDGE_QUEUE)}


class SampleJudge:
    """Judges batches of completions; the clients of all sandboxes share one Redis connection.

    The caller closes the connection, after :meth:`close`. ``workers`` are the names of the
    process's RQ workers.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        commands: PipelinedRedis,
        name: str,
        metrics: JudgeMetrics,
        lanes: Mapping[str, Lane],
        workers: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._workers = [BaseWorker.redis_worker_namespace_prefix + worker for worker in workers]
        self._settings = settings
        self._commands = commands
        self._metrics = metrics
        self._lanes = lanes
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelled = False
        self._sandboxes: dict[tuple[object, ...], SandboxClient] = {}
        self._problems: dict[tuple[str, str, str], Problem] = {}
        self._kept = max(_PROBLEMS_KEPT, 2 * settings.concurrency)
        self._canaries = CanaryRounds(commands, metrics.count_canaries)

    async def judge_batch(self, batch: Batch, queue: str, *, again: bool = False) -> None:
        """Judge what has no verdict; ``again`` if the batch was delivered before.

        A completion that raises leaves the others alone. They are judged before this raises.
        """
        urgent.set(queue == keys.REWARD_QUEUE)
        lane = self._lanes[queue]
        lane.count(len(batch.completions))
        tasks = [
            asyncio.create_task(self._judge_sample(lane, batch.run, sample, sha256, again=again))
            for sample, sha256 in batch.completions
        ]
        self._tasks.update(tasks)
        if self._cancelled:
            self.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.difference_update(tasks)
        for result in results:
            if result is not None:
                raise result

    def cancel(self) -> None:
        """Cancel all batches, now and later."""
        self._cancelled = True
        for task in self._tasks:
            task.cancel()

    async def _judge_sample(
        self, lane: Lane, run: str, sample: SampleId, sha256: str, *, again: bool
    ) -> None:
        names = keys.RunKeys(run)
        try:
            async with lane.places:
                stored = await self._read(run, sample, sha256)
                if stored is None:
                    return
                if again:
                    await self._commands.send([("HINCRBY", names.meta, "jobs_redelivered", 1)])
                with self._metrics.judging():
                    verdict, cases = await self.judge(run, *stored)
                self._metrics.count(verdict)
        finally:
            lane.count(-1)  # one that waits for Redis to store its verdict leaves room
        if await write_verdict(self._commands, names, verdict, cases):
            log.debug("judged", run=run, sample=sample.key, status=verdict.final_status.value)

    async def close(self) -> None:
        await self._canaries.close()
        for sandbox in self._sandboxes.values():
            await sandbox.__aexit__()

    async def report_trouble(self, every: float = 2.0) -> NoReturn:
        """Record in the workers' hashes what the sandboxes do while none answers."""
        reported = False
        while True:
            await asyncio.sleep(every)
            troubles = [await sandbox.trouble() for sandbox in self._sandboxes.values()]
            trouble = next(filter(None, troubles), None)
            if trouble or reported:
                with suppress(RedisError):  # the next round writes it again
                    await self._commands.send(
                        [("HSET", worker, TROUBLE, trouble or "") for worker in self._workers]
                    )
            reported = trouble is not None

    async def _read(
        self, run: str, sample: SampleId, sha256: str
    ) -> tuple[Generation, str | None, Problem | None] | None:
        """Read a completion, the run's config, and the problem unless that is in memory.

        Returns:
            None if the completion was deleted, replaced or judged meanwhile.
        """
        names, key = keys.RunKeys(run), (run, sample.dataset, sample.problem_id)
        problem = self._problems.get(key)
        commands: list[Command] = [
            ("HGET", names.completions, sample.key),
            ("HEXISTS", names.verdicts, sample.key),
            ("HGET", names.meta, "config"),
        ]
        if problem is None:
            field = problem_key(sample.dataset, sample.problem_id)
            commands.append(("HGET", names.problems, field))
        packed, judged, config, *rest = await self._commands.send(commands)
        generation = None if packed is None else Generation.model_validate_json(unpack(packed))
        if judged or generation is None or generation.completion_sha256 != sha256:
            log.debug("completion judged, deleted or replaced", run=run, sample=sample.key)
            return None
        if problem is None and rest[0] is not None:
            problem = self._problems[key] = Problem.model_validate_json(unpack(rest[0]))
            if len(self._problems) > self._kept:
                del self._problems[next(iter(self._problems))]
        return generation, None if config is None else text(config), problem

    async def judge(
        self, run: str, generation: Generation, document: str | None, problem: Problem | None
    ) -> tuple[Verdict, bytes | None]:
        """Judge a completion; failures of the infrastructure are in the verdict.

        ``document`` is the run's config as JSON. It and the problem are None if the ledger lacks
        them. Returns the verdict, and the packed cases if the run records them.

        Raises:
            PlumblineError: The ledger lacks the run or the problem.
            ServiceError: Redis is unavailable.
        """
        try:
            config = _config_of(run, document)
            client = self._sandbox(config)
        except ConfigError as error:
            return _unjudged(run, generation, error, Attempts()), None
        if problem is None:
            sample = generation.sample
            raise PlumblineError(
                f"run {run!r} has no problem {sample.problem_id!r} in {sample.dataset!r}"
            )
        # A trainer's samples are forgotten with their answers.
        recorded = "none" if keys.is_reward_run(run) else config.output.cases
        task = Task.of(config, problem, generation.completion, client, recorded)
        try:
            judgement = await judge(task)
        except (SandboxUnavailableError, ConfigError) as error:
            return _unjudged(run, generation, error, task.attempts), None
        finally:
            # Not before the first samples, which would wait for them, and not after a verdict is
            # stored: after the last one the run waits for the rounds that were started.
            if config.judge.canaries:
                profile = CanaryProfile.of(task.settings, problem)
                ending = self._settings.concurrency
                await self._canaries.start(run, profile, config, client, ending)
        requests, failures = task.attempts.requests, task.attempts.failures
        verdict = to_verdict(generation, judgement, requests, failures, self.name)
        return verdict, await _packed_cases(verdict, judgement, recorded)

    def _sandbox(self, config: Config) -> SandboxClient:
        urls = self._settings.sandboxes or config.sandbox_urls
        attempts, budget = config.judge.max_attempts, config.judge.retry_budget
        key = (*urls, attempts, budget, config.sandbox.max_concurrency)
        if key not in self._sandboxes:
            client = open_client(config, self._settings, self._commands, self.name)
            self._sandboxes[key] = client
        return self._sandboxes[key]


async def _packed_cases(
    verdict: Verdict, judgement: Judgement, recorded: RecordedCases
) -> bytes | None:
    """Pack the cases that are recorded; None if none are, or the sample will be judged again."""
    if recorded == "none" or not verdict.judged:
        return None

    def pack() -> bytes:
        cases = case_results(judgement, recorded)
        return SampleCases(recorded=recorded, cases=cases).packed()

    texts = (text for case in judgement.cases for text in (case.actual, case.stderr) if text)
    return await compute(pack, sum(map(len, texts)))


def _unjudged(
    run: str,
    generation: Generation,
    error: SandboxUnavailableError | ConfigError,
    attempts: Attempts,
) -> Verdict:
    failures = list(attempts.failures)
    if isinstance(error, CheckerFailedError):  # no attempt failed, the checker did
        failures += error.failures
        reason = str(error)
    else:
        unavailable = isinstance(error, SandboxUnavailableError)
        kind = FailureKind.SANDBOX if unavailable else FailureKind.CONFIG
        reason = str(InfraFailure(kind=kind, text=str(error)))
    log.error("sample not judged", run=run, sample=generation.sample.key, reason=reason)
    verdict = unjudged_verdict(generation.sample, generation.completion_sha256, reason)
    return verdict.model_copy(update={"attempts": attempts.requests, "infra_failures": failures})


def _config_of(run: str, document: str | None) -> Config:
    """Parse a run's config, for each job, because a resumed run may have a corrected one.

    The runner checked it, so only another release wrote what is unknown here.

    Raises:
        ConfigError: It has keys or values that this release does not know, or other rules.
        PlumblineError: There is no such run.
    """
    if document is None:
        raise PlumblineError(f"run {run!r} is not in the ledger")
    try:
        config = _parsed_config(document)
        if config.judge.rules != RULES:
            raise ConfigError(f"judge.rules is {config.judge.rules}, but this judge's are {RULES}")
    except ConfigError as error:
        raise ConfigError(
            f"the config of run {run!r} cannot be read by this judge ({release()}): {error}; "
            "another release wrote it"
        ) from None
    return config


@lru_cache(maxsize=16)
def _parsed_config(document: str) -> Config:
    return validate_document(Config, json.loads(document))
