"""Judging of samples, with the sandboxes, configs and problems that a process keeps."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from redis.exceptions import RedisError
from rq.worker import BaseWorker

from services.judge.canaries import CanaryRounds
from services.judge.canary_programs import CanaryProfile
from services.judge.health import JudgeMetrics
from services.judge.judging import Judge
from services.judge.methods.base import compute
from services.judge.permits import SandboxPool
from services.judge.requests import Attempts
from services.judge.sandbox import SandboxClient, SandboxUnavailableError
from services.judge.settings import JudgeSettings
from services.judge.special_judge import CheckerFailedError
from services.judge.verdict import Judgement, case_results, to_verdict
from shared.address import Address
from shared.case_records import SampleCases
from shared.config import RULES, Config, validate_config
from shared.errors import ConfigError, PlumblineError
from shared.ledger import keys
from shared.ledger.ledger import problem_key, text, unjudged_verdict
from shared.ledger.packing import unpack
from shared.ledger.pipelined import Command, PipelinedRedis
from shared.ledger.queue import TROUBLE
from shared.schemas import (
    Generation,
    InfraFailure,
    Problem,
    RecordedCases,
    SampleId,
    Verdict,
)
from shared.service.logs import get_logger
from shared.statuses import FailureKind
from shared.versions import release

log = get_logger(__name__)

_PROBLEMS_KEPT = 32


@dataclass(frozen=True, slots=True)
class JudgeInput:
    """A completion and the data that its judging needs, as they were when they were read.

    Attributes:
        run: The run's id.
        sample: The sample to judge.
        completion: None if the completion was deleted or replaced meanwhile.
        judged: Whether the sample has a verdict already.
        config: The run's config as JSON; None if the run does not exist.
        problem: As stored; None if it is missing, or was not asked for.
    """

    run: str
    sample: SampleId
    completion: Generation | None
    judged: bool
    config: str | None
    problem: bytes | None


@dataclass(frozen=True, slots=True)
class JudgedSample:
    """A verdict, and the packed cases if the run records them."""

    verdict: Verdict
    cases: bytes | None = None


class SampleJudge:
    """Judges samples concurrently; the clients of all sandboxes share one Redis connection.

    Args:
        settings: Settings of the process.
        commands: Connection to Redis; the caller closes it, after :meth:`close`.
        name: The process's name.
        metrics: Metrics of the process.
        workers: Names of its RQ workers.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        commands: PipelinedRedis,
        name: str,
        metrics: JudgeMetrics,
        workers: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._workers = [BaseWorker.redis_worker_namespace_prefix + worker for worker in workers]
        self._settings = settings
        self._commands = commands
        self._sandboxes: dict[tuple[object, ...], tuple[SandboxClient, SandboxPool]] = {}
        self._problems: dict[tuple[str, str, str], Problem] = {}
        self._kept = max(_PROBLEMS_KEPT, 2 * settings.concurrency)
        self._canaries = CanaryRounds(commands, metrics.count_canaries)

    async def close(self) -> None:
        await self._canaries.close()
        for sandbox, pool in self._sandboxes.values():
            await sandbox.__aexit__(None, None, None)
            await pool.close()

    async def report_trouble(self, every: float = 2.0) -> NoReturn:
        """Record in the workers' hashes what the sandboxes do while none answers."""
        reported = False
        while True:
            await asyncio.sleep(every)
            troubles = [await sandbox.trouble() for sandbox, _ in self._sandboxes.values()]
            trouble = next(filter(None, troubles), None)
            if trouble or reported:
                with suppress(RedisError):  # the next round writes it again
                    await self._commands.send(
                        [("HSET", worker, TROUBLE, trouble or "") for worker in self._workers]
                    )
            reported = trouble is not None

    async def read(self, run: str, sample: SampleId, sha256: str) -> JudgeInput:
        """Read the input of a completion, with its problem unless that is in memory."""
        problem = not self._knows_problem(run, sample)
        found = await self._read(run, sample, sha256, problem=problem)
        if not problem and not self._knows_problem(run, sample):  # forgotten during the read
            found = await self._read(run, sample, sha256, problem=True)
        return found

    def _knows_problem(self, run: str, sample: SampleId) -> bool:
        return (run, sample.dataset, sample.problem_id) in self._problems

    async def _read(self, run: str, sample: SampleId, sha256: str, *, problem: bool) -> JudgeInput:
        names = keys.RunKeys(run)
        commands: list[Command] = [
            ("HGET", names.completions, sample.key),
            ("HEXISTS", names.verdicts, sample.key),
            ("HGET", names.meta, "config"),
        ]
        if problem:
            field = problem_key(sample.dataset, sample.problem_id)
            commands.append(("HGET", names.problems, field))
        packed, judged, config, *rest = await self._commands.send(commands)
        completion = None if packed is None else Generation.model_validate_json(unpack(packed))
        if completion is not None and completion.completion_sha256 != sha256:
            completion = None
        return JudgeInput(
            run=run,
            sample=sample,
            completion=completion,
            judged=bool(judged),
            config=None if config is None else text(config),
            problem=rest[0] if rest else None,
        )

    async def judge(self, found: JudgeInput, generation: Generation) -> JudgedSample:
        """Judge a completion; failures of the infrastructure are in the verdict.

        Raises:
            PlumblineError: The ledger lacks the run or the problem.
            ServiceError: Redis is unavailable.
        """
        attempts = Attempts()
        try:
            config = self._config(found)
        except ConfigError as error:
            return JudgedSample(_unjudged(found.run, generation, error, attempts))
        problem = self._problem(found)
        # A trainer's samples are forgotten with their answers.
        recorded = "none" if keys.is_reward_run(found.run) else config.output.cases
        try:
            judge = Judge(config, self._sandbox(config), recorded)
            judgement = await judge.judge(problem, generation.completion, attempts)
        except (SandboxUnavailableError, ConfigError) as error:
            return JudgedSample(_unjudged(found.run, generation, error, attempts))
        finally:
            # Not before the first samples, which would wait for them, and not after a verdict is
            # stored: after the last one the run waits for the rounds that were started.
            await self._start_canaries(found.run, config, problem)
        requests, failures = attempts.requests, attempts.failures
        verdict = to_verdict(generation, judgement, requests, failures, self.name)
        return JudgedSample(verdict, await _packed_cases(verdict, judgement, recorded))

    async def _start_canaries(self, run: str, config: Config, problem: Problem) -> None:
        if not config.judge.canaries.enabled:
            return
        profile = CanaryProfile.of(config.judge.for_dataset(problem.dataset), problem)
        try:
            client = self._sandbox(config)
        except ConfigError:
            return  # the sample's verdict has the reason
        await self._canaries.start(run, profile, config, client, self._settings.concurrency)

    def _config(self, found: JudgeInput) -> Config:
        # Read for each job: a resumed run may have a corrected config.
        if found.config is None:
            raise PlumblineError(f"run {found.run!r} is not in the ledger")
        return _config_of(f"the config of run {found.run!r}", found.config)

    def _problem(self, found: JudgeInput) -> Problem:
        sample = found.sample
        key = (found.run, sample.dataset, sample.problem_id)
        problem = self._problems.pop(key, None)
        if problem is None:
            if found.problem is None:
                raise PlumblineError(
                    f"run {found.run!r} has no problem {sample.problem_id!r} in {sample.dataset!r}"
                )
            problem = Problem.model_validate_json(unpack(found.problem))
        self._problems[key] = problem  # the latest used is the last
        if len(self._problems) > self._kept:
            del self._problems[next(iter(self._problems))]
        return problem

    def _addresses(self, config: Config) -> list[Address]:
        given = self._settings.sandboxes or config.sandbox_urls
        return [Address.parse(url) for url in given]

    def _sandbox(self, config: Config) -> SandboxClient:
        addresses = self._addresses(config)
        attempts, budget = config.judge.max_attempts, config.judge.retry_budget
        concurrency = config.sandbox.max_concurrency
        key = (*addresses, attempts, budget, concurrency)
        if key not in self._sandboxes:
            # A run's own address may be anybody's who can write to Redis.
            headers = self._settings.sandbox_headers if self._settings.sandboxes else {}
            # Keys, metrics and records name a sandbox without its password.
            pool = SandboxPool(
                self._commands,
                [address.url for address in addresses],
                self.name,
                max_concurrency=concurrency,
            )
            client = SandboxClient(
                pool,
                max_attempts=attempts,
                retry_budget=budget,
                headers=headers,
                addresses=addresses,
            )
            self._sandboxes[key] = client, pool
        return self._sandboxes[key][0]


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
    reason = str(_failure(error))
    log.error("sample not judged", run=run, sample=generation.sample.key, reason=reason)
    verdict = unjudged_verdict(generation.sample, generation.completion_sha256, reason)
    failures = list(attempts.failures)
    if isinstance(error, CheckerFailedError):  # no attempt failed, the checker did
        failures += error.failures
    return verdict.model_copy(update={"attempts": attempts.requests, "infra_failures": failures})


def _failure(error: SandboxUnavailableError | ConfigError) -> InfraFailure:
    if isinstance(error, CheckerFailedError):
        return error.failures[-1]
    unavailable = isinstance(error, SandboxUnavailableError)
    kind = FailureKind.SANDBOX if unavailable else FailureKind.CONFIG
    return InfraFailure(kind=kind, text=str(error))


def _config_of(what: str, document: str) -> Config:
    """Parse a config; the runner checked it, so only another release wrote what is unknown here.

    Raises:
        ConfigError: It has keys or values that this release does not know, or other rules.
    """
    try:
        config = _parsed_config(document)
        if config.judge.rules != RULES:
            raise ConfigError(f"judge.rules is {config.judge.rules}, but this judge's are {RULES}")
    except ConfigError as error:
        raise ConfigError(
            f"{what} cannot be read by this judge ({release()}): {error}; another release wrote it"
        ) from None
    return config


@lru_cache(maxsize=16)
def _parsed_config(document: str) -> Config:
    return validate_config(json.loads(document))
