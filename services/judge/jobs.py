"""RQ worker and its job: judge one completion, write the verdict to the ledger.

``judge_sample`` is idempotent: a completion that has a verdict is not judged again.
"""

import asyncio
import json
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Event, Thread
from typing import Any, TypeVar

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import RedisError
from rq import Queue, SimpleWorker
from rq.executions import Execution
from rq.job import Job
from rq.worker import WorkerStatus

from services.judge.health import JudgeMetrics
from services.judge.judging import Judge
from services.judge.permits import PoolSettings, SandboxPool
from services.judge.requests import Attempts
from services.judge.sandbox import SandboxClient, SandboxUnavailableError
from services.judge.settings import JudgeSettings
from services.judge.verdict import to_verdict
from shared.config import Config, validate_config
from shared.errors import ConfigError, PlumblineError
from shared.ledger import JobLease, Ledger, connect_async, job_id
from shared.ledger.ledger import unjudged_verdict
from shared.schemas import Generation, InfraFailure, Problem, SampleId, Verdict
from shared.service.logs import get_logger
from shared.statuses import FailureKind

log = get_logger(__name__)
T = TypeVar("T")


def judge_sample(run: str, sample: str, completion_sha256: str) -> None:
    """Judge one completion. RQ jobs refer to this function by name; RQ stores no result."""
    current().judge(run, SampleId.parse(sample), completion_sha256)


class JudgeWorker(SimpleWorker):
    """RQ worker that judges in its own process, with heartbeats during a job.

    RQ's single-process worker sends none. After seven minutes it would be removed from the list of
    workers and its job would count as abandoned, but an answer that sleeps in many tests takes
    longer to judge.
    """

    def subscribe(self) -> None:
        """Take no commands over Redis, which nobody sends.

        RQ would listen for them in a thread, for whose end it waits up to a second at shutdown.
        """

    def execute_job(self, job: Job, queue: Queue) -> None:
        execution = self.prepare_execution(job)
        with self._heartbeats(job, execution):
            self.perform_job(job, queue, execution)
        self.set_state(WorkerStatus.IDLE)

    @contextmanager
    def _heartbeats(self, job: Job, execution: Execution) -> Iterator[None]:
        done = Event()

        def beat() -> None:
            while not done.wait(self.job_monitoring_interval):
                try:
                    self.maintain_heartbeats(job, execution)
                except RedisError as error:
                    log.warning("heartbeat failed", job=job.id, reason=str(error))

        thread = Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


class JudgeProcess:
    """State that a worker process keeps between jobs: event loop, sandbox connections, problems.

    Judges one sample after another. Not thread-safe; one per process.
    """

    def __init__(self, settings: JudgeSettings, redis: Redis, name: str) -> None:
        self.name = name
        self.metrics = JudgeMetrics()
        self._settings = settings
        self._redis = redis
        self._loop = asyncio.Runner()
        self._sandboxes: dict[tuple[object, ...], tuple[SandboxClient, SandboxPool]] = {}
        self._async_redis: AsyncRedis | None = None
        self._problem = lru_cache(maxsize=32)(self._load_problem)

    def close(self) -> None:
        self._loop.run(self._close())
        self._loop.close()

    async def _close(self) -> None:
        for sandbox, pool in self._sandboxes.values():
            await sandbox.__aexit__(None, None, None)
            await pool.close()
        if self._async_redis is not None:
            await self._async_redis.aclose()

    def judge(self, run: str, sample: SampleId, completion_sha256: str) -> None:
        """Judge a completion and write its verdict; skip one that was judged or replaced."""
        ledger = Ledger(self._redis, run)
        if ledger.verdict(sample) is not None:
            return
        generation = ledger.completion(sample)
        if generation is None or generation.completion_sha256 != completion_sha256:
            log.warning("completion deleted or replaced, job skipped", run=run, sample=sample.key)
            return
        lease = JobLease(
            self._redis,
            job_id(run, sample, completion_sha256),
            self.name,
            ttl=self._settings.lease_ttl,
        )
        lease.acquire()
        began = time.monotonic()
        verdict = self._run(lease, self._verdict(run, generation))
        self.metrics.count(verdict, time.monotonic() - began)
        if ledger.record_verdict(verdict):
            log.debug("judged", run=run, sample=sample.key, status=verdict.final_status.value)
        lease.release()

    def _run(self, lease: JobLease, work: Coroutine[Any, Any, T]) -> T:
        async def renewed() -> T:
            renewal = asyncio.create_task(_renew(lease, self._settings.lease_ttl / 4))
            try:
                return await work
            finally:
                renewal.cancel()

        return self._loop.run(renewed())

    async def _verdict(self, run: str, generation: Generation) -> Verdict:
        sample = generation.sample
        problem = self._problem(run, sample.dataset, sample.problem_id)
        config = self._config(run)
        judge = Judge(config, await self._sandbox(config))
        attempts = Attempts()
        try:
            judgement = await judge.judge(problem, generation.completion, attempts)
        except (SandboxUnavailableError, ConfigError) as error:
            unavailable = isinstance(error, SandboxUnavailableError)
            kind = FailureKind.SANDBOX if unavailable else FailureKind.CONFIG
            reason = str(InfraFailure(kind=kind, text=str(error)))
            log.error("sample not judged", run=run, sample=sample.key, reason=reason)
            verdict = unjudged_verdict(sample, generation.completion_sha256, reason)
            return verdict.model_copy(
                update={"attempts": attempts.requests, "infra_failures": attempts.failures}
            )
        return to_verdict(generation, judgement, attempts.requests, attempts.failures, self.name)

    def _config(self, run: str) -> Config:
        # Read for each job: a resumed run may have a corrected config.
        document = Ledger(self._redis, run).config()
        if document is None:
            raise PlumblineError(f"run {run!r} is not in the ledger")
        return _parsed_config(document)

    def _load_problem(self, run: str, dataset: str, problem_id: str) -> Problem:
        problem = Ledger(self._redis, run).problem(dataset, problem_id)
        if problem is None:
            raise PlumblineError(f"run {run!r} has no problem {problem_id!r} in {dataset!r}")
        return problem

    async def _sandbox(self, config: Config) -> SandboxClient:
        urls = self._settings.sandboxes or config.sandbox_urls
        attempts, budget = config.judge.max_attempts, config.judge.retry_budget
        concurrency = config.sandbox.max_concurrency
        key = (*urls, attempts, budget, concurrency)
        if key not in self._sandboxes:
            if self._async_redis is None:
                self._async_redis = await connect_async(self._settings.redis_url, wait=60)
            settings = PoolSettings(max_concurrency=concurrency)
            pool = SandboxPool(self._async_redis, urls, self.name, settings=settings)
            client = SandboxClient(pool, max_attempts=attempts, retry_budget=budget)
            self._sandboxes[key] = client, pool
        return self._sandboxes[key][0]


@lru_cache(maxsize=16)
def _parsed_config(document: str) -> Config:
    return validate_config(json.loads(document))


async def _renew(lease: JobLease, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        try:
            await asyncio.to_thread(lease.renew)
        except RedisError as error:  # the job goes on, and Redis may return before the lease ends
            log.warning("lease not renewed, retrying", reason=str(error))


_current: JudgeProcess | None = None


def set_current(process: JudgeProcess) -> None:
    """Set the state that all jobs in this operating-system process use."""
    global _current
    _current = process


def current() -> JudgeProcess:
    if _current is None:
        raise RuntimeError("no judge process: jobs run in `python -m services.judge` only")
    return _current
