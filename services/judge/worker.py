"""RQ workers of a judge process, and the event loop in which all of them judge.

Each worker is RQ's own and has one job, a batch of completions, at a time. It runs in a thread,
where it waits while the event loop judges the batch. Another thread sends the heartbeats, which
renew the leases on jobs, so a loop that is busy comparing large outputs loses no job.
"""

import asyncio
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.client import Pipeline
from redis.exceptions import RedisError
from rq import Queue, SimpleWorker
from rq.exceptions import DequeueTimeout
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.suspension import is_suspended
from rq.timeouts import TimerDeathPenalty
from rq.worker import WorkerStatus
from rq.worker_registration import register

from services.judge.jobs import JudgeSettings, Lane, SampleJudge, lanes_of
from services.judge.metrics import JudgeMetrics
from shared.ledger import connect_async, fail_fast, keys
from shared.ledger.connection import give_up
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.queue import JOB_RETRIES, JudgeJob, JudgeQueue
from shared.service.logs import get_logger
from shared.service.processes import cancel_and_wait

log = get_logger(__name__)

# Leases that must end unrenewed before a worker counts as gone: 30 s, and 12 heartbeats.
_LEASES_UNTIL_GONE = 3
# Seconds for which a thread may keep the interpreter from the others. By default 5 ms, for which a
# worker would wait after each reply of Redis.
_SWITCH = 0.001
# Seconds until a worker tries again after an error, and of one wait for its turn.
_PAUSE = 1
# Seconds of one wait for a job, for which a judge that is stopped waits, too.
_WAIT = 0.25
# Seconds after which a process without room for jobs of a queue looks for those of the other one.
_LOOK_FOR_ROOM = 0.05
# Seconds for storing what cancelled jobs have left, and for returning permits at the end.
_CLOSE_SECONDS = 10.0


class JudgeWorker(SimpleWorker):
    """RQ's worker, for one thread of a judge process.

    Args:
        queues: In the order in which they are served.
        judge: Judges a job; called in the thread.
        turn: Held by the worker of the process that waits for a job.
        lease: Seconds until the lease on a job expires without a heartbeat.
        maintains: Whether this worker runs RQ's maintenance often enough for dead judges.
    """

    job_class = JudgeJob
    queue_class = JudgeQueue  # type: ignore[assignment]
    death_penalty_class = TimerDeathPenalty  # RQ's other one needs the main thread

    def __init__(
        self,
        name: str,
        queues: Sequence[str],
        redis: Redis,
        judge: Callable[[JudgeJob], None],
        *,
        turn: threading.Lock,
        lanes: Mapping[str, Lane],
        lease: int,
        maintains: bool,
    ) -> None:
        super().__init__(
            [JudgeQueue(queue, redis) for queue in queues],
            name=name,
            connection=redis,
            serializer=JSONSerializer,
            log_job_description=False,
            worker_ttl=16,  # below this, RQ would raise the client's limit for replies
            maintenance_interval=max(1, lease // 4) if maintains else 3600,
        )
        self.redis_server_version = (7, 0, 0)  # type: ignore[assignment]  # RQ asks with INFO
        self._judge = judge
        self._turn = turn
        self._lanes = lanes
        self._lease = lease

    def serve(self) -> None:
        """Work until :meth:`stop`."""
        while not self._stop_requested:
            try:
                self.check_for_suspension(burst=False)
                if taken := self._take():
                    self.execute_job(*taken)
            except Exception as error:  # noqa: BLE001 - neither an outage nor a job ends a worker
                log.error("a worker failed, continuing", worker=self.name, reason=repr(error))
                time.sleep(_PAUSE)

    def _take(self) -> tuple[Job, Queue] | None:
        """Wait for a job for a while, if it is this worker's turn and there is room for one."""
        if not self._turn.acquire(timeout=_PAUSE):
            return None
        try:
            if self._stop_requested:
                return None
            rooms = [self._lanes[queue.name].room for queue in self.queues]
            if full := next((room for room in rooms if not room.is_set()), None):
                full.wait(_LOOK_FOR_ROOM)
            queues = [q for q, room in zip(self.queues, rooms, strict=True) if room.is_set()]
            if not queues or is_suspended(self.connection):
                return None
            # Jobs of a queue without room must not wait for those of the other one.
            return self._next(queues, None if full else _WAIT)
        finally:
            self._turn.release()

    def _next(self, queues: list[Queue], wait: float | None) -> tuple[Job, Queue] | None:
        """Take the next job. RQ's own method would not return before Redis answers."""
        if wait:
            self.set_state(WorkerStatus.IDLE)
            self.heartbeat()
        with suppress(DequeueTimeout):
            return self.queue_class.dequeue_any(
                queues,
                wait,  # type: ignore[arg-type]
                self.connection,
                job_class=JudgeJob,
                serializer=JSONSerializer,
                death_penalty_class=TimerDeathPenalty,
            )
        return None

    def stop(self) -> None:
        """Take no further job."""
        self._stop_requested = True

    def execute_job(self, job: Job, queue: Queue) -> None:
        job.judge = self._judge  # type: ignore[attr-defined]
        job.redis_server_version = self.redis_server_version
        try:
            super().execute_job(job, queue)
        finally:
            self.executions.clear()  # RQ keeps one that an outage of Redis ended

    def beat(self) -> None:
        """Renew the lease on the job in hand, and run RQ's maintenance if it is due."""
        for execution in list(self.executions.values()):
            self.maintain_heartbeats(execution.job, execution)
        if self.maintenance_interval < self.worker_ttl and self.should_run_maintenance_tasks:
            self.run_maintenance_tasks()  # type: ignore[no-untyped-call]

    def get_heartbeat_ttl(self, job: Job, working_time: float = 0.0) -> int:
        return self._lease

    def heartbeat(self, timeout: int | None = None, pipeline: Pipeline | None = None) -> None:
        """Register for some leases' time, so that a killed worker is soon not counted any more.

        A worker that was silent for longer may have been removed by another judge, and returns.
        """
        commands = self.connection.pipeline() if pipeline is None else pipeline
        super().heartbeat(_LEASES_UNTIL_GONE * self._lease, commands)
        register(self, commands)
        if pipeline is None:
            commands.execute()

    def subscribe(self) -> None:
        """Take no commands over Redis; for its listener RQ waits a second at shutdown."""

    def procline(self, message: str) -> None:
        """Keep the process's title, which belongs to all of its workers."""

    def clean_group_registries(self) -> None:
        """There are no groups, and RQ would unpickle their jobs."""


class JudgeProcess:
    """The workers of a process, and the judge that they share.

    After SIGTERM or SIGINT no worker takes another job. After the drain limit, or a second signal,
    unfinished jobs fail, and RQ retries them.
    """

    def __init__(self, redis: Redis, settings: JudgeSettings, name: str) -> None:
        self.name = name
        self.metrics = JudgeMetrics(settings.concurrency)
        self._settings = settings
        self._redis = redis
        self._turn = threading.Lock()
        self._lanes = lanes_of(settings.concurrency)
        # A job may be a single completion, and a slow one keeps its worker.
        self.workers = [self._worker(number) for number in range(max(2, settings.concurrency))]

    def _worker(self, number: int) -> JudgeWorker:
        queues = [keys.REWARD_QUEUE, keys.JUDGE_QUEUE]
        return JudgeWorker(
            f"{self.name}.{number}",
            # One worker prefers evaluations, so rewards cannot starve them.
            queues if number else queues[::-1],
            self._redis,
            self._perform,
            turn=self._turn,
            lanes=self._lanes,
            lease=self._settings.lease_ttl,
            maintains=number == 0,
        )

    async def serve_until_signal(self) -> None:
        """Work until SIGTERM or SIGINT."""
        stopping, forced = asyncio.Event(), asyncio.Event()
        for sign in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(
                sign, lambda: (forced if stopping.is_set() else stopping).set()
            )
        await self.serve(stopping, forced)

    async def serve(self, stopping: asyncio.Event, forced: asyncio.Event | None = None) -> None:
        """Work until ``stopping`` is set; ``forced`` ends the wait for unfinished jobs."""
        sys.setswitchinterval(_SWITCH)
        for name in ("rq.worker", "rq.queue"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._loop = asyncio.get_running_loop()
        forced = forced or asyncio.Event()
        redis = await connect_async(self._settings.redis_url)
        commands = PipelinedRedis(redis)
        names = [worker.name for worker in self.workers]
        judge = self._judge = SampleJudge(
            self._settings, commands, self.name, self.metrics, self._lanes, names
        )
        reporting = asyncio.create_task(judge.report_trouble())
        ended = threading.Event()
        with ThreadPoolExecutor(len(self.workers) + 1) as threads:
            for worker in self.workers:
                await self._loop.run_in_executor(threads, worker.bootstrap, "WARNING")
            serving = [self._loop.run_in_executor(threads, w.serve) for w in self.workers]
            beating = self._loop.run_in_executor(threads, self._beat, ended)
            await stopping.wait()
            for worker in self.workers:
                worker.stop()
            drained = asyncio.gather(*serving)
            force = asyncio.create_task(forced.wait())
            waiting: set[asyncio.Future[Any]] = {drained, force}
            await asyncio.wait(
                waiting,
                timeout=self._settings.drain_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            judge.cancel()
            await asyncio.wait({drained}, timeout=_CLOSE_SECONDS)
            if not drained.done():  # Redis hangs: neither verdicts nor failures can be stored
                log.error("Redis does not answer, stopping without it")
                while not drained.done():  # a cancelled call first returns its permit, by Redis
                    give_up(self._redis)  # again, for a command that was about to connect
                    judge.cancel()
                    await asyncio.wait({drained}, timeout=_PAUSE)
            await drained
            ended.set()
            await beating
            await self._loop.run_in_executor(threads, self._deregister)
        await cancel_and_wait(reporting, force)
        with suppress(TimeoutError):  # without Redis, permits cannot be returned: they expire
            async with asyncio.timeout(_CLOSE_SECONDS):
                await judge.close()
        await redis.aclose()

    def _deregister(self) -> None:
        """Remove the workers from RQ's list, where they expire while Redis is down."""
        with suppress(RedisError), fail_fast(self._redis) as redis:
            for worker in self.workers:
                worker.connection = redis
                worker.teardown()  # type: ignore[no-untyped-call]

    def _perform(self, job: JudgeJob) -> None:
        """Judge a job's batch in the event loop; called in a worker's thread."""
        again = job.retries_left != JOB_RETRIES
        judging = self._judge.judge_batch(job.batch, job.origin, again=again)
        asyncio.run_coroutine_threadsafe(judging, self._loop).result()

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(self._settings.lease_ttl / 4):
            for worker in self.workers:
                try:
                    worker.beat()
                except RedisError as error:  # Redis may return before the leases end
                    log.warning("no heartbeat, retrying", worker=worker.name, reason=str(error))
                except Exception:
                    log.exception("no heartbeat, retrying", worker=worker.name)
