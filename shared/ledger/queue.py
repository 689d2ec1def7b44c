"""RQ queue of judging jobs, and the leases of the workers that process them."""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime

from redis import Redis
from redis.client import Pipeline
from rq import Queue, Retry, Worker
from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer

from shared.ledger import keys
from shared.schemas import SampleId

# Retries by RQ of a job that raised (Redis unavailable, a bug), before it counts as failed.
_RETRIES = 3
_FAILURE_TTL = 7 * 24 * 3600


def job_id(run: str, sample: SampleId, completion_sha256: str) -> str:
    """The id of the job that judges a completion; the same on every delivery (idempotent)."""
    text = f"{run}\n{sample.key}\n{completion_sha256}"
    return hashlib.sha256(text.encode()).hexdigest()[:40]


class JudgeQueue:
    """Job queue with one job per completion; a job's arguments are run, sample and hash."""

    def __init__(self, redis: Redis) -> None:
        self.rq = Queue(keys.JUDGE_QUEUE, connection=redis, serializer=JSONSerializer)
        self._redis = redis

    def put(
        self,
        pipeline: Pipeline,
        run: str,
        sample: SampleId,
        completion_sha256: str,
        *,
        losses: int = 0,
        first: bool = False,
    ) -> None:
        """Add the job to ``pipeline``; it is enqueued when the pipeline is executed.

        A job with which workers were lost (``losses``) is judged alone in its process. ``first``
        enqueues it before all others.
        """
        job = Job.create(
            keys.JUDGE_FUNCTION,
            args=[run, sample.key, completion_sha256],
            id=job_id(run, sample, completion_sha256),
            connection=self._redis,
            serializer=JSONSerializer,
            description=sample.key,
            timeout=-1,  # every sandbox call has a deadline of its own
            result_ttl=0,
            failure_ttl=_FAILURE_TTL,
            origin=keys.JUDGE_QUEUE,
            meta={"losses": losses} if losses else None,
        )
        retry = Retry(max=_RETRIES)
        job.retries_left, job.retry_intervals = retry.max, retry.intervals
        self.rq.enqueue_job(job, pipeline=pipeline, at_front=first)

    def waiting(self) -> set[str]:
        """Ids of the jobs that wait in the queue."""
        return set(self.rq.get_job_ids())

    def oldest_wait(self) -> float:
        """Seconds since the job at the head of the queue was enqueued; 0 for an empty queue."""
        head = self.rq.get_job_ids(0, 1)
        try:
            job = Job.fetch(head[0], connection=self._redis, serializer=JSONSerializer)
        except (IndexError, NoSuchJobError):
            return 0.0
        queued = job.enqueued_at
        if queued is None:
            return 0.0
        return max(0.0, (datetime.now(UTC) - queued.replace(tzinfo=UTC)).total_seconds())

    def workers(self) -> int:
        """Number of workers that are registered for the queue and still send heartbeats."""
        return len(Worker.all(queue=self.rq))

    def leased(self, jobs: list[str]) -> set[str]:
        """The subset of ``jobs`` that a live worker holds a lease on."""
        if not jobs:
            return set()
        values = self._redis.mget([keys.lease(job) for job in jobs])
        return {job for job, value in zip(jobs, values, strict=True) if value is not None}

    def forget(self, jobs: Iterable[str]) -> None:
        """Remove jobs and all their RQ data from Redis."""
        for job in jobs:
            self._redis.lrem(self.rq.key, 0, job)
            self._redis.lrem(self.rq.intermediate_queue_key, 0, job)
            try:
                found = Job.fetch(job, connection=self._redis, serializer=JSONSerializer)
            except NoSuchJobError:
                continue
            found.delete()


# Only the holder may renew or release a lease: it may have expired, and another worker may hold it.
TAKE_LOCK = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
RELEASE_LOCK = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class JobLease:
    """A worker's lease on a job; it expires unless it is renewed within ``ttl`` seconds."""

    def __init__(self, redis: Redis, job: str, holder: str, ttl: float = 10.0) -> None:
        self._redis = redis
        self._key = keys.lease(job)
        self._holder = holder
        self._ttl_ms = int(ttl * 1000)
        self._renew = redis.register_script(TAKE_LOCK)
        self._release = redis.register_script(RELEASE_LOCK)

    def acquire(self) -> None:
        """Take the lease, also from another worker that holds it."""
        self._redis.set(self._key, self._holder, px=self._ttl_ms)

    def renew(self) -> bool:
        """Extend the lease; False if another worker has taken it over."""
        return bool(self._renew(keys=[self._key], args=[self._holder, self._ttl_ms]))

    def release(self) -> None:
        """Release the lease, unless another worker has taken it over."""
        self._release(keys=[self._key], args=[self._holder])


def text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
