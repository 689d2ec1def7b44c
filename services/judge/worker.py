"""RQ worker that judges several completions at once, in one event loop.

The loop takes jobs, judges each in a task of its own, and finishes them. A thread renews the leases
of all jobs in hand and sends RQ's heartbeats, so a loop that is busy comparing large outputs loses
no job.
"""

import asyncio
import math
import threading
import time
import traceback
from collections.abc import Callable

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.client import Pipeline
from redis.exceptions import RedisError, ResponseError
from rq import SimpleWorker
from rq.serializers import JSONSerializer
from rq.suspension import is_suspended
from rq.utils import now
from rq.worker_registration import register

from services.judge.health import JudgeMetrics
from services.judge.jobs import JudgedSample, SampleJudge
from services.judge.settings import JudgeSettings
from shared.ledger import JudgeQueue, connect_async
from shared.ledger.jobs import HeldJobs, JobInput, TakenJob, WorkerJobs
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.queue import JobCall
from shared.service.logs import get_logger
from shared.service.tasks import cancel_and_wait

log = get_logger(__name__)

Fail = Callable[[TakenJob, Exception], None]
# Leases that must end unrenewed before a worker counts as gone: 30 s, and 12 heartbeats.
_LEASES_UNTIL_GONE = 3


class JudgeWorker(SimpleWorker):
    """Worker of the judging queue.

    It registers and handles signals as RQ's worker does: after SIGTERM or SIGINT it takes no other
    job and finishes those in hand; after the drain limit, or a second signal, they return to the
    queue. A job that raises is retried or fails by RQ's rules, without effect on the others.

    Of RQ's worker it is the registration, the heartbeats and the signals. RQ's code that reads jobs
    is not used: it imports and calls the functions and callbacks that are stored with them, posts
    to their webhooks and unpickles what belongs to their groups.
    """

    def __init__(self, redis: Redis, settings: JudgeSettings, name: str) -> None:
        super().__init__(
            [JudgeQueue(redis).rq],
            name=name,
            connection=redis,
            serializer=JSONSerializer,
            log_job_description=False,
        )
        self.metrics = JudgeMetrics(settings.concurrency)
        self._settings = settings
        self._held = HeldJobs(redis, name, lease_ttl=settings.lease_ttl)
        self._stopping = threading.Event()
        self._on_stop: Callable[[], object] = lambda: None

    def subscribe(self) -> None:
        """Take no commands over Redis, which nobody sends.

        RQ would listen for them in a thread, for whose end it waits up to a second at shutdown.
        """

    def _set_connection(self, connection: Redis) -> Redis:
        """Keep the time limit of replies: RQ's of seven minutes is for its own blocking reads.

        A server whose machine vanished would hold up the renewal of leases for as long.
        """
        return connection

    def heartbeat(self, timeout: int | None = None, pipeline: Pipeline | None = None) -> None:
        """Register for some leases' time, so that a killed worker is soon not counted any more.

        RQ registers a worker once, and for eight minutes from each heartbeat. Here a worker that
        was silent for longer, for example while its machine was suspended, may have been removed by
        another judge, and returns.
        """
        seconds = max(1, math.ceil(_LEASES_UNTIL_GONE * self._settings.lease_ttl))
        super().heartbeat(seconds, pipeline)
        register(self, pipeline)

    def serve(self) -> None:
        """Work until a signal."""
        self.bootstrap("WARNING")
        self.heartbeat()
        self._install_signal_handlers()  # type: ignore[no-untyped-call]
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve())
        finally:
            try:
                self._held.give_back()
            except RedisError as error:  # the leases end, and the runner delivers the jobs again
                log.error("jobs in hand not returned to the queue", reason=str(error))
            self.teardown()  # type: ignore[no-untyped-call]

    def fail(self, job: TakenJob, error: Exception) -> None:
        """Retry the job of a task that raised, or record it as failed; blocks."""
        found = "".join(traceback.format_exception(error))
        if self._held.fail(job, found):
            log.error("a job failed", job=job.id, reason=repr(error), exc_info=error)
        else:
            log.error("a job that was deleted failed", job=job.id, reason=repr(error))

    def run_maintenance_tasks(self) -> None:
        """Clean up after lost workers, for all judges; RQ's own would call what jobs name."""
        self._held.clean()
        self.last_cleaned_at = now()  # type: ignore[assignment]  # RQ annotates only the None

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        redis = await connect_async(self._settings.redis_url, wait=60)
        commands = PipelinedRedis(redis)
        judge = SampleJudge(self._settings, commands, self.name, self.metrics)
        jobs = WorkerJobs(commands, self.name, lease_ttl=self._settings.lease_ttl)
        drain = self._settings.drain_seconds
        work = JobLoop(jobs, redis, judge, self.fail, self.metrics, drain=drain)
        self._on_stop = lambda: loop.call_soon_threadsafe(work.stop)
        if self._stopping.is_set():
            work.stop()
        keeper = LeaseKeeper(self, self._held, work, every=self._settings.lease_ttl / 4)
        keeper.start()
        reporting = asyncio.create_task(judge.report_trouble())
        try:
            await work.run()
        finally:
            reporting.cancel()
            keeper.stop()
            await asyncio.to_thread(keeper.join, 5.0)  # or it might register the worker again
            await judge.close()
            await redis.aclose()

    def _shutdown(self) -> None:
        self._stopping.set()
        self._on_stop()


class JobLoop:
    """Takes as many jobs as it may judge at once, and judges each in a task."""

    def __init__(
        self,
        jobs: WorkerJobs,
        redis: AsyncRedis,
        judge: SampleJudge,
        fail: Fail,
        metrics: JudgeMetrics,
        *,
        drain: float | None = None,
        poll: float = 5.0,
        pause: float = 1.0,
    ) -> None:
        """Prepare the loop.

        Args:
            jobs: The jobs of this worker.
            redis: For waiting for jobs.
            judge: Judges samples.
            fail: Handles a job that raised; called in a thread.
            metrics: Metrics of the process, which have its concurrency.
            drain: Limit in seconds for the jobs in hand after :meth:`stop`; None for no limit.
            poll: Seconds of one blocking wait for a job.
            pause: Seconds until the next attempt while Redis is unavailable.
        """
        self.held: dict[str, TakenJob] = {}
        self.turned_at = time.monotonic()
        self._jobs = jobs
        self._redis = redis
        self._judge = judge
        self._fail = fail
        self._metrics = metrics
        self._drain = drain
        self._poll = poll
        self._pause = pause
        self._unjudged: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._suspended = False
        self._stop = asyncio.Event()
        self._progress = asyncio.Event()

    async def run(self) -> None:
        """Judge until :meth:`stop`, then finish the jobs in hand.

        After the drain limit they are cancelled, and remain in the worker's hands in Redis.
        """
        turning = asyncio.create_task(self._turn())
        while not self._stop.is_set():
            try:
                await self._feed()
            except ResponseError as error:  # for example a key of another type
                log.error("Redis refused a command, retrying", reason=str(error))
                await asyncio.sleep(self._pause)
            except RedisError as error:
                log.error("Redis unavailable, retrying", reason=str(error))
                await asyncio.sleep(self._pause)
        try:
            await self._jobs.stop_waiting()
        except RedisError as error:  # repeated when the jobs are given back
            log.error("Redis unavailable while stopping", reason=str(error))
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=self._drain)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        turning.cancel()

    def stop(self) -> None:
        """Take no further job."""
        self._stop.set()
        self._progress.set()

    def suspend(self, suspended: bool) -> None:
        """Take no jobs while RQ's workers are suspended (``rq suspend``)."""
        self._suspended = suspended
        self._progress.set()

    async def _turn(self) -> None:
        while True:
            self.turned_at = time.monotonic()
            await asyncio.sleep(1.0)

    async def _feed(self) -> None:
        self._progress.clear()
        if (room := self._room()) <= 0:
            await self._progress.wait()
            return
        taken = await self._jobs.take(room, idle=not self.held)
        for job in taken.jobs:
            self.held[job.execution] = job
            self._unjudged.add(job.execution)
            task = asyncio.create_task(self._process(job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if taken.blocked:
            await self._progress.wait()
        elif len(taken.jobs) < room and not any(job.suspect for job in taken.jobs):
            await self._wait_for_job()

    def _room(self) -> int:
        """Number of jobs to take. Those that only wait for Redis to store a verdict leave room."""
        if self._suspended or self._stop.is_set():
            return 0
        if any(job.suspect for job in self.held.values()):
            return 0
        concurrency = self._metrics.concurrency
        return min(concurrency - len(self._unjudged), 2 * concurrency - len(self.held))

    async def _wait_for_job(self) -> None:
        waiting = asyncio.create_task(self._jobs.wait(self._redis, self._poll))
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await cancel_and_wait(waiting)
        if not waiting.cancelled():
            waiting.result()

    async def _process(self, job: TakenJob) -> None:
        try:
            await self._judge_and_finish(job)
        except Exception as error:  # noqa: BLE001 - RQ's rule: what a job raises is its own failure
            await self._hand_over(job, error)
        finally:
            del self.held[job.execution]
            self._judged(job)

    async def _judge_and_finish(self, job: TakenJob) -> None:
        try:
            call = JobCall.parse(job.data)
        except ValueError as error:
            log.error(
                "a job that the ledger did not write was dropped", job=job.id, reason=str(error)
            )
            await self._jobs.drop(job)
            return
        found = await self._jobs.read(call, problem=not self._judge.knows_problem(call))
        if found.problem is None and not self._judge.knows_problem(call):
            found = await self._jobs.read(call, problem=True)  # forgotten during the read
        began = time.monotonic()
        judged = await self._judgement(found)
        seconds = time.monotonic() - began
        self._judged(job)  # the next job can be taken in the pipeline that stores the verdict
        verdict, cases = (judged.verdict, judged.cases) if judged else (None, None)
        written = await self._jobs.finish(job, call, verdict, seconds, cases)
        if written and verdict is not None:
            log.debug(
                "judged",
                run=call.run,
                sample=call.sample.key,
                status=verdict.final_status.value,
            )

    async def _judgement(self, found: JobInput) -> JudgedSample | None:
        """Judge a sample that has a completion and no verdict."""
        if found.completion is None:
            log.warning(
                "completion deleted or replaced, job skipped",
                run=found.run,
                sample=found.sample.key,
            )
        if found.completion is None or found.judged:
            return None
        with self._metrics.judging():
            judged = await self._judge.judge(found, found.completion)
        self._metrics.count(judged.verdict)
        return judged

    def _judged(self, job: TakenJob) -> None:
        self._unjudged.discard(job.execution)
        self._progress.set()

    async def _hand_over(self, job: TakenJob, error: Exception) -> None:
        try:
            await asyncio.to_thread(self._fail, job, error)
        except RedisError as unavailable:  # the lease ends, and the runner delivers the job again
            log.error("job lost", job=job.id, reason=repr(error), redis=str(unavailable))


class LeaseKeeper(threading.Thread):
    """Renews the leases of all jobs in hand, and sends RQ's heartbeats.

    Args:
        worker: The RQ worker.
        jobs: Its jobs.
        work: The loop that holds them.
        every: Seconds between two renewals.
        stuck_after: Seconds after which an event loop that does not turn counts as stuck. Its
            leases are left to expire, so that its jobs are delivered to other workers.
    """

    def __init__(
        self,
        worker: JudgeWorker,
        jobs: HeldJobs,
        work: JobLoop,
        *,
        every: float,
        stuck_after: float = 300.0,
    ) -> None:
        super().__init__(name="leases", daemon=True)
        self._worker = worker
        self._jobs = jobs
        self._work = work
        self._every = every
        self._stuck_after = stuck_after
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._suspended = False
        self._lost: set[str] = set()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        while True:
            try:
                self._renew()
                self._beat()
            except RedisError as error:  # the jobs go on, and Redis may return before leases end
                log.warning("leases not renewed, retrying", reason=str(error))
            except Exception:
                log.exception("leases not renewed, retrying")
            if self._stopped.wait(self._every):
                return

    def _renew(self) -> None:
        held = list(self._work.held.values())
        if not held or time.monotonic() - self._work.turned_at > self._stuck_after:
            return
        lost = self._jobs.renew(held)
        if lost - self._lost:
            log.warning("jobs taken over by other workers", jobs=sorted(lost - self._lost))
        self._lost = lost

    def _beat(self) -> None:
        suspended = bool(is_suspended(self._worker.connection, self._worker))  # a heartbeat too
        if suspended != self._suspended:
            self._suspended = suspended
            log.info("suspended" if suspended else "resumed", worker=self._worker.name)
            self._loop.call_soon_threadsafe(self._work.suspend, suspended)
        if self._worker.should_run_maintenance_tasks:
            self._worker.run_maintenance_tasks()
