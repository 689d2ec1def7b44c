"""RQ queues of judging jobs.

A job is a batch of completions of one run. RQ queues, delivers, retries and recovers jobs: the
registry of started jobs is the lease, and a judge that runs RQ's maintenance retries the jobs of
dead workers. The ledger decides what a job has to judge, so a job may be delivered twice.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

from redis import Redis
from redis.client import Pipeline
from redis.exceptions import ResponseError
from rq import Queue, Retry
from rq.exceptions import NoSuchJobError
from rq.executions import Execution, ExecutionRegistry
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer
from rq.utils import missing_keys, now, utcparse
from rq.worker_registration import get_keys

from shared.ledger import keys
from shared.schemas import SampleId

T = TypeVar("T")

BATCH = 16
"""Completions of a job at most. With eight a judge needed a fifth more CPU per completion."""
TROUBLE = "plumbline_trouble"
"""Field of a worker's hash: the state of its judge's sandboxes, while none of them answers."""
JOB_RETRIES = 3
"""Retries by RQ of a job that raised or whose worker died, before it counts as failed."""
_FAILURE_TTL = 7 * 24 * 3600
# Seconds after which another judge may run RQ's maintenance if the judge that began it was killed.
_MAINTENANCE_TTL = 5
# RQ names a job's function, but judges call their own.
_FUNCTION = "services.judge.worker.judge_batch"
# What is read of a stored job. Callbacks, webhooks, groups and the like are not.
_FIELDS = frozenset(
    b"data status origin description created_at enqueued_at started_at ended_at last_heartbeat"
    b" worker_name timeout result_ttl failure_ttl retries_left retry_intervals"
    b" enqueue_at_front_on_retry".split()
)


@dataclass(frozen=True, slots=True)
class Batch:
    """The arguments of a job: a run, and samples with the hashes of their completions."""

    run: str
    completions: tuple[tuple[SampleId, str], ...]

    @classmethod
    def parse(cls, arguments: Sequence[Any]) -> Self:
        """Parse the arguments of a stored job.

        Raises:
            ValueError: :meth:`JudgeQueue.put` did not write them.
        """
        try:
            run, completions = arguments
            named = [(SampleId.parse(str(key)), str(sha256)) for key, sha256 in completions]
        except TypeError as error:
            raise ValueError(str(error)) from None
        return cls(str(run), tuple(named))


class JudgeJob(Job):
    """RQ's job with a fixed function: nothing that a stored job names is imported or called.

    ``judge`` is set by the worker that performs the job.
    """

    judge: Callable[["JudgeJob"], None]

    @property
    def batch(self) -> Batch:
        return Batch.parse(self.args)

    @classmethod
    def fetch(cls, id: str, connection: Redis | None = None, serializer: Any = None) -> "JudgeJob":  # noqa: ANN401
        """Read a job; a record that cannot be read is no job, so it stops no worker."""
        try:
            return cast(JudgeJob, super().fetch(id, connection, JSONSerializer))
        except (ValueError, TypeError, ResponseError) as error:
            raise NoSuchJobError(f"job {id} cannot be read: {error}") from None

    def restore(self, raw_data: dict[bytes, bytes]) -> None:
        super().restore({name: raw_data[name] for name in raw_data.keys() & _FIELDS})

    def perform(self) -> None:
        self.judge(self)

    @property
    def execution_registry(self) -> ExecutionRegistry:
        return _Executions(self.id, connection=self.connection)


class _Executions(ExecutionRegistry):
    """Executions of a job.

    RQ 3.0 deletes them with the job, and fails if a dead worker's has expired. They all expire, and
    a worker deletes its own.
    """

    def get_executions(self, start: int = 0, end: int = -1) -> list[Execution]:
        return []


class JudgeQueue(Queue):
    """RQ's queue of batches; RQ's further options have no effect."""

    job_class = JudgeJob
    # No limit for a job, because each call of a sandbox has one.
    DEFAULT_TIMEOUT = -1

    def __init__(self, name: str, connection: Redis, **options: Any) -> None:  # noqa: ANN401
        super().__init__(name, connection, job_class=JudgeJob, serializer=JSONSerializer)
        # RQ would ask with INFO, which few users may call.
        self.redis_server_version = (7, 0, 0)

    @classmethod
    def lmove(cls, connection: Redis, queue_key: str, timeout: int | None) -> Any:  # noqa: ANN401
        """Take a job of one queue as of several, without a list between queue and worker.

        The judge's user may not write that list, and the runner queues a job that is lost.
        """
        return cls.lpop([queue_key], timeout, connection)

    @classmethod
    def of_run(cls, redis: Redis, run: str) -> Self:
        """The queue of a run's jobs. Rewards have their own, because a trainer waits for them."""
        return cls(keys.REWARD_QUEUE if keys.is_reward_run(run) else keys.JUDGE_QUEUE, redis)

    def put(self, pipeline: Pipeline, run: str, completions: Sequence[tuple[SampleId, str]]) -> str:
        """Add a job to a transaction, with which it is enqueued; returns the job's id.

        ``completions`` are at most ``BATCH`` samples with the hashes of their completions. The same
        ones have the same id.
        """
        named = [(sample.key, sha256) for sample, sha256 in completions]
        job = self.create_job(
            _FUNCTION,
            args=(run, named),
            job_id=hashlib.sha256(repr((run, named)).encode()).hexdigest()[:40],
            description=f"{len(named)} of {run}",
            result_ttl=0,
            failure_ttl=_FAILURE_TTL,
            # What a killed judge had in hand has waited already.
            retry=Retry(max=JOB_RETRIES, enqueue_at_front=True),
        )
        self.enqueue_job(job, pipeline=pipeline)
        return job.id

    def present(self) -> set[str]:
        """Ids of the jobs that wait or are being judged, those of dead workers included."""
        started = self.started_job_registry.get_job_ids(cleanup=False)
        return {*self.get_job_ids(), *started}

    def has_failed(self, job: str) -> bool:
        """Whether RQ's retries of a job are used up."""
        stored = self.fetch_job(job)
        return stored is not None and stored.get_status(refresh=False) == JobStatus.FAILED

    def forget(self, jobs: Iterable[str]) -> None:
        """Delete jobs."""
        names = list(dict.fromkeys(jobs))
        pipe = self.connection.pipeline(transaction=False)
        for job in names:
            pipe.exists(Job.key_for(job))
        for job, exists in zip(names, pipe.execute(), strict=True):
            if exists and (stored := self.fetch_job(job)):
                stored.delete()

    def oldest_wait(self) -> float:
        """Seconds since the job at the head of the queue was enqueued; 0 for an empty queue."""
        return self._oldest(self.get_job_ids(0, 1), "enqueued_at")

    def oldest_lease(self) -> float:
        """Seconds since the earliest start of a job that a live worker has; 0 without a job."""
        registry = self.started_job_registry
        entries = self.connection.zrange(registry.key, f"{time.time()}", "+inf", byscore=True)
        jobs = [registry.parse_job_id(entry) for entry in cast(list[str], entries)]
        return self._oldest(jobs, "started_at")

    def _oldest(self, jobs: Sequence[str], field: str) -> float:
        pipe = self.connection.pipeline(transaction=False)
        for job in jobs:
            pipe.hget(Job.key_for(job), field)
        dates = [utcparse(stored.decode()) for stored in pipe.execute() if stored]
        return max(0.0, (now() - min(dates)).total_seconds()) if dates else 0.0

    def acquire_maintenance_lock(self) -> bool:
        """RQ's lock of 15 minutes would stop recovery for as long if its holder is killed."""
        key = self.registry_cleaning_key
        return bool(self.connection.set(key, 1, nx=True, ex=_MAINTENANCE_TTL))


def live_workers(redis: Redis) -> list[str]:
    """Keys of the RQ workers that send heartbeats, sorted. A judge process has several."""
    workers = get_keys(JudgeQueue(keys.JUDGE_QUEUE, redis))
    return sorted(workers - set(missing_keys(redis, list(workers))))


def troubles_of_judges(redis: Redis) -> list[str | None]:
    """The :data:`TROUBLE` of each RQ worker, if there is any.

    Raises:
        RedisError: Redis is unavailable.
    """
    pipe = redis.pipeline(transaction=False)
    for key in live_workers(redis):
        pipe.hget(key, TROUBLE)
    return [trouble.decode(errors="replace") if trouble else None for trouble in pipe.execute()]


def batches(items: Sequence[T], size: int = BATCH) -> Iterable[Sequence[T]]:
    """Split completions into jobs, or other things into parts."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
