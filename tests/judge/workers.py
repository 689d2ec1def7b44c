"""A judge's RQ worker inside the test's process."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Self

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from services.judge.jobs import JudgeSettings, SampleJudge, lanes_of
from services.judge.metrics import JudgeMetrics
from services.judge.worker import JudgeWorker
from shared.ledger import connect_async
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.queue import JudgeJob
from shared.schemas import Generation, Verdict


class StandInJudge(SampleJudge):
    """Judges by a function of the test."""

    judge_by: Callable[[Generation], Awaitable[Verdict]]

    async def judge(
        self, run: str, generation: Generation, *_: object
    ) -> tuple[Verdict, bytes | None]:
        return await self.judge_by(generation), None


class Worker:
    """Takes jobs of the queues and judges them; ``errors`` are those of jobs that raised."""

    def __init__(
        self,
        url: str,
        name: str,
        *,
        sandbox_urls: str = "",
        judge: Callable[[Generation], Awaitable[Verdict]] | None = None,
        concurrency: int = 4,
        lease_ttl: int = 10,
    ) -> None:
        self.name = name
        self.errors: list[Exception] = []
        self.metrics = JudgeMetrics(concurrency)
        self._settings = JudgeSettings(redis_url=url, sandbox_urls=sandbox_urls)
        self._judge_by = judge
        self._redis = Redis.from_url(url)
        self._lanes = lanes_of(concurrency)
        self.rq = JudgeWorker(
            name,
            ["reward", "judge"],
            self._redis,
            self._perform,
            turn=threading.Lock(),
            lanes=self._lanes,
            lease=lease_ttl,
            maintains=True,
        )

    async def __aenter__(self) -> Self:
        self.client: AsyncRedis = await connect_async(self._settings.redis_url)
        self._loop = asyncio.get_running_loop()
        commands = PipelinedRedis(self.client)
        kind = StandInJudge if self._judge_by else SampleJudge
        self._judge = kind(self._settings, commands, self.name, self.metrics, self._lanes)
        if isinstance(self._judge, StandInJudge) and self._judge_by:
            self._judge.judge_by = self._judge_by
        return self

    async def __aexit__(self, *_: object) -> None:
        self.rq.stop()
        await self._judge.close()
        await self.client.aclose()
        self._redis.close()

    async def judge_all(self) -> None:
        """Process the jobs that wait in the queues."""
        await asyncio.to_thread(self._work)

    async def serve(self) -> None:
        """Process jobs until the block ends."""
        await asyncio.to_thread(self.rq.serve)

    def _work(self) -> None:
        while taken := self.rq.dequeue_job_and_maintain_ttl(None):
            self.rq.execute_job(*taken)

    def _perform(self, job: JudgeJob) -> None:
        judging = self._judge.judge_batch(job.batch, job.origin)
        try:
            asyncio.run_coroutine_threadsafe(judging, self._loop).result()
        except Exception as error:
            self.errors.append(error)
            raise
