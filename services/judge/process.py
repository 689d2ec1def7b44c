"""What a worker process keeps between jobs: event loop, sandbox connections, problems, configs."""

import asyncio
import json
import time
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any, TypeVar

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from services.judge.judging import Judge
from services.judge.metrics import JudgeMetrics
from services.judge.outcome import to_verdict
from services.judge.sandbox import Attempts, SandboxClient, SandboxUnavailableError
from services.judge.settings import JudgeSettings
from shared.config import Config, validate_config
from shared.errors import ConfigError, PlumblineError
from shared.ledger import Lease, Ledger, PoolSettings, SandboxPool, connect_async, job_id
from shared.ledger.ledger import unjudged_verdict
from shared.schemas import Generation, Problem, SampleId, Verdict
from shared.service.logs import get_logger

log = get_logger(__name__)
T = TypeVar("T")


class JudgeProcess:
    """Judges one sample after another. Not thread-safe; one per process."""

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
        """Judge a completion and write its verdict, unless it has been replaced or judged."""
        ledger = Ledger(self._redis, run)
        if ledger.verdict(sample) is not None:
            return
        generation = ledger.completion(sample)
        if generation is None or generation.completion_sha256 != completion_sha256:
            log.warning("completion is gone or replaced", run=run, sample=sample.key)
            return
        lease = Lease(
            self._redis,
            job_id(run, sample, completion_sha256),
            self.name,
            ttl=self._settings.lease_ttl,
        )
        lease.renew()
        began = time.monotonic()
        verdict = self._run(lease, self._verdict(run, generation))
        self.metrics.count(verdict, time.monotonic() - began)
        if ledger.record_verdict(verdict):
            log.debug("judged", run=run, sample=sample.key, status=verdict.final_status.value)
        lease.release()

    def _run(self, lease: Lease, work: Coroutine[Any, Any, T]) -> T:
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
            kind = "sandbox" if isinstance(error, SandboxUnavailableError) else "config"
            reason = f"{kind}: {error}"
            log.error("no verdict", run=run, sample=sample.key, reason=reason)
            verdict = unjudged_verdict(sample, generation.completion_sha256, reason)
            return verdict.model_copy(
                update={"attempts": attempts.requests, "infra_failures": attempts.failures}
            )
        return to_verdict(generation, judgement, attempts, self.name)

    def _config(self, run: str) -> Config:
        # Read for each job: the next session of a run may have put something right.
        document = Ledger(self._redis, run).config()
        if document is None:
            raise PlumblineError(f"the ledger knows no run {run!r}")
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


async def _renew(lease: Lease, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await asyncio.to_thread(lease.renew)


_current: JudgeProcess | None = None


def set_current(process: JudgeProcess) -> None:
    """Make ``process`` the one that jobs of this operating-system process use."""
    global _current
    _current = process


def current() -> JudgeProcess:
    if _current is None:
        raise RuntimeError("no judge process: jobs run in `python -m services.judge` only")
    return _current
