"""An RQ worker that judges in its own process and shows meanwhile that it is alive."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from redis.exceptions import RedisError
from rq import Queue, SimpleWorker
from rq.executions import Execution
from rq.job import Job
from rq.worker import WorkerStatus

from shared.service.logs import get_logger

log = get_logger(__name__)


class JudgeWorker(SimpleWorker):
    """By itself RQ's worker of one process says nothing during a job.

    After seven minutes it would be gone from the list of workers and its job taken for abandoned;
    judging an answer that sleeps in many tests takes longer.
    """

    def execute_job(self, job: Job, queue: Queue) -> None:
        execution = self.prepare_execution(job)
        with self._alive(job, execution):
            self.perform_job(job, queue, execution)
        self.set_state(WorkerStatus.IDLE)

    @contextmanager
    def _alive(self, job: Job, execution: Execution) -> Iterator[None]:
        done = Event()

        def beat() -> None:
            while not done.wait(self.job_monitoring_interval):
                try:
                    self.maintain_heartbeats(job, execution)
                except RedisError as error:
                    log.warning("no heartbeat", job=job.id, reason=str(error))

        thread = Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
