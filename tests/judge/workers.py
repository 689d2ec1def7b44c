"""A worker's loop inside the test's process."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from redis.asyncio import Redis as AsyncRedis

from services.judge.health import JudgeMetrics
from services.judge.jobs import JudgedSample, SampleJudge
from services.judge.settings import JudgeSettings
from services.judge.worker import JobLoop
from shared.ledger import connect_async
from shared.ledger.jobs import JobInput, TakenJob, WorkerJobs
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.queue import JobCall
from shared.schemas import Generation, Verdict


class StandInJudge:
    """Judges by a function of the test."""

    def __init__(self, judge: Callable[[Generation], Awaitable[Verdict]]) -> None:
        self._judge = judge

    def knows_problem(self, _call: JobCall) -> bool:
        return True

    async def judge(self, _found: JobInput, generation: Generation) -> JudgedSample:
        return JudgedSample(await self._judge(generation))


class Worker:
    """Takes jobs of the queue and judges them; ``errors`` are those of jobs that raised."""

    def __init__(
        self,
        url: str,
        name: str,
        *,
        sandbox_urls: str = "",
        judge: Callable[[Generation], Awaitable[Verdict]] | None = None,
        concurrency: int = 4,
        lease_ttl: float = 10.0,
    ) -> None:
        self.name = name
        self.errors: list[Exception] = []
        self.metrics = JudgeMetrics(concurrency)
        self._settings = JudgeSettings(redis_url=url, sandbox_urls=sandbox_urls)
        self._judge_by = judge
        self._lease_ttl = lease_ttl

    async def __aenter__(self) -> Self:
        self.client: AsyncRedis = await connect_async(self._settings.redis_url)
        commands = PipelinedRedis(self.client)
        self._judge = SampleJudge(self._settings, commands, self.name, self.metrics)
        self._jobs = WorkerJobs(commands, self.name, lease_ttl=self._lease_ttl)
        self.loop = self._loop()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._judge.close()
        await self.client.aclose()

    async def judge_all(self) -> None:
        """Process the jobs that wait in the queue."""
        self.loop = self._loop()
        running = asyncio.create_task(self.loop.run())
        while (await self.client.llen("rq:queue:judge")) or self.loop.held:
            await asyncio.sleep(0.01)
        self.loop.stop()
        await running

    def _loop(self) -> JobLoop:
        judge = StandInJudge(self._judge_by) if self._judge_by else self._judge
        return JobLoop(self._jobs, self.client, judge, self._fail, self.metrics, poll=0.2)

    def _fail(self, _job: TakenJob, error: Exception) -> None:
        self.errors.append(error)
