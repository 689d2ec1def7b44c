"""RQ queue of judging jobs.

RQ's code writes the jobs, but never reads them: it would unpickle, import and call what they name.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self, cast

from redis import Redis
from redis.client import Pipeline
from redis.exceptions import ResponseError
from redis.typing import EncodableT, FieldT
from rq import Queue
from rq.defaults import RQ_KEY_PREFIX
from rq.job import Job
from rq.registry import FailedJobRegistry, FinishedJobRegistry, StartedJobRegistry
from rq.serializers import JSONSerializer
from rq.utils import utcformat, utcparse
from rq.worker import BaseWorker
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from shared.ledger import keys
from shared.ledger.packing import inflate
from shared.schemas import SampleId

# Retries by RQ of a job that raised (Redis unavailable, a bug), before it counts as failed.
JOB_RETRIES = 3
FAILURE_TTL = 7 * 24 * 3600
_JOB_ID = re.compile(rb"[0-9a-f]{40}")
_EXECUTION_ID = re.compile(rb"[0-9a-f]{32}")
_MAX_DATE = 64
# Bytes of a job's call when it is inflated. Names of problems are all that can be long in it.
_MAX_CALL = 256 * 1024
# Jobs in workers' hands that are looked at.
_MAX_HELD = 10_000


def job_id(run: str, sample: SampleId, completion_sha256: str) -> str:
    """The id of the job that judges a completion; the same on every delivery (idempotent)."""
    return job_id_of(run, sample.key, completion_sha256)


def job_id_of(run: str, sample: str, completion_sha256: str) -> str:
    """As :func:`job_id`, by the sample's key."""
    text = f"{run}\n{sample}\n{completion_sha256}"
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def job_call(run: str, sample: str, completion_sha256: str) -> bytes:
    """The field ``data`` of a job, as RQ writes it: function, instance, arguments, keywords."""
    call: list[object] = [keys.JUDGE_FUNCTION, None, [run, sample, completion_sha256], {}]
    return zlib.compress(json.dumps(call).encode())


@dataclass(frozen=True, slots=True)
class JobCall:
    """The arguments of a job: run, sample and hash of the completion."""

    run: str
    sample: SampleId
    sha256: str

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse the field ``data`` of a job. Nothing that it names is imported or called.

        Raises:
            ValueError: :func:`job_call` did not write it.
        """
        try:
            _, _, (run, key, sha256), _ = json.loads(inflate(data, _MAX_CALL))
            return cls(str(run), SampleId.parse(str(key)), str(sha256))
        except (zlib.error, TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None

    @property
    def keys(self) -> keys.RunKeys:
        return keys.RunKeys(self.run)


# Fields that every job has when it is queued, as RQ writes them: no time limit, because every
# sandbox call has a deadline of its own; no result is kept.
_FIELDS: Mapping[Any, str | int] = {
    "status": "queued",
    "origin": keys.JUDGE_QUEUE,
    "timeout": -1,
    "result_ttl": 0,
    "failure_ttl": FAILURE_TTL,
    "retries_left": JOB_RETRIES,
    "retry_intervals": "[0]",
}


class JudgeQueue:
    """Job queue with one job per completion; a job's arguments are run, sample and hash."""

    def __init__(self, redis: Redis) -> None:
        self.rq = Queue(keys.JUDGE_QUEUE, connection=redis, serializer=JSONSerializer)
        # Asked with INFO otherwise, which most services' users may not call; nobody reads it.
        self.rq.redis_server_version = (7, 0, 0)
        self._redis = redis

    def put(
        self,
        pipeline: Pipeline,
        run: str,
        sample: SampleId,
        completion_sha256: str,
        *,
        losses: int = 0,
    ) -> None:
        """Add the job to ``pipeline``; it is enqueued when the pipeline is executed.

        A job with which workers were lost (``losses``) is judged alone in its process.
        """
        job, date = job_id(run, sample, completion_sha256), utcformat(datetime.now(UTC))
        fields: dict[FieldT, EncodableT] = {
            "data": job_call(run, sample.key, completion_sha256),
            "description": sample.key,
            "created_at": date,
            "enqueued_at": date,
            **_FIELDS,
        }
        if losses:
            fields["meta"] = json.dumps({"losses": losses})
        pipeline.sadd(Queue.redis_queues_keys, self.rq.key)
        pipeline.hset(Job.key_for(job), mapping=fields)
        pipeline.rpush(self.rq.key, job)

    def count(self) -> int:
        """Number of entries of the queue."""
        return self._redis.llen(self.rq.key)

    def waiting(self) -> set[str]:
        """Ids of the jobs that wait in the queue."""
        entries = cast(list[bytes], self._redis.lrange(self.rq.key, 0, -1))
        return {entry.decode() for entry in entries if _JOB_ID.fullmatch(entry)}

    def oldest_wait(self) -> float:
        """Seconds since the job at the head of the queue was enqueued; 0 for an empty queue."""
        head = cast(bytes | None, self._redis.lindex(self.rq.key, 0))
        if head is None or not _JOB_ID.fullmatch(head):
            return 0.0
        return self._oldest([head.decode()], "enqueued_at")

    def oldest_lease(self) -> float:
        """Seconds for which a worker has had the job that it took first; 0 without any lease.

        A job whose lease has expired does not count. RQ lists it until its worker's time is up.
        """
        jobs = list(self._held())
        pipe = self._redis.pipeline(transaction=False)
        for job in jobs:
            pipe.exists(keys.lease(job))
        held = [job for job, lease in zip(jobs, pipe.execute(), strict=True) if lease]
        return self._oldest(held, "started_at")

    def _oldest(self, jobs: list[str], field: str) -> float:
        """Seconds since the earliest date in a field of jobs; 0 without a date.

        Jobs that are gone, or none of the ledger's, are left out, and nothing long is read.
        """
        names = [Job.key_for(job) for job in jobs]
        pipe = self._redis.pipeline(transaction=False)
        for name in names:
            pipe.hstrlen(name, field)
        sizes = pipe.execute(raise_on_error=False)
        for name, size in zip(names, sizes, strict=True):
            if isinstance(size, int) and 0 < size <= _MAX_DATE:
                pipe.hget(name, field)
        stored = pipe.execute(raise_on_error=False)
        dates = [date for value in stored if (date := _date(value)) is not None]
        if not dates:
            return 0.0
        return max(0.0, (datetime.now(UTC) - min(dates)).total_seconds())

    def workers(self) -> int:
        """Number of workers that are registered for the queue and still send heartbeats."""
        found = cast(set[bytes], self._redis.smembers(WORKERS_BY_QUEUE_KEY % keys.JUDGE_QUEUE))
        prefix = BaseWorker.redis_worker_namespace_prefix.encode()
        names = [name for name in found if name.startswith(prefix)]
        return int(self._redis.exists(*names)) if names else 0

    def leased(self, jobs: list[str]) -> set[str]:
        """The subset of ``jobs`` that a live worker holds a lease on."""
        if not jobs:
            return set()
        values = self._redis.mget([keys.lease(job) for job in jobs])
        return {job for job, value in zip(jobs, values, strict=True) if value is not None}

    def forget(self, jobs: Iterable[str]) -> None:
        """Remove jobs and all their RQ data from Redis."""
        held: dict[str, list[str]] = {}
        with suppress(ResponseError):  # as below
            held = self._held()
        for job in jobs:
            executions = {*self._executions(job), *held.get(job, ())}
            pipe = self._redis.pipeline(transaction=True)
            pipe.lrem(self.rq.key, 0, job)
            pipe.lrem(self.rq.intermediate_queue_key, 0, job)
            for registry in (FailedJobRegistry, FinishedJobRegistry):
                pipe.zrem(registry(keys.JUDGE_QUEUE).key, job)
            for execution in executions:
                pipe.zrem(StartedJobRegistry(keys.JUDGE_QUEUE).key, f"{job}:{execution}")
                pipe.delete(f"{RQ_KEY_PREFIX}:execution:{job}:{execution}")
            key = Job.key_for(job)
            of_others = (f"{key}:dependents", f"{key}:dependencies")
            results, runs = f"{RQ_KEY_PREFIX}:results:{job}", f"{RQ_KEY_PREFIX}:executions:{job}"
            pipe.delete(key, *of_others, results, runs)
            # Whoever wrote something else into a registry only keeps it from being tidied.
            pipe.execute(raise_on_error=False)

    def _held(self) -> dict[str, list[str]]:
        """Executions in the registry of started jobs, by job.

        Those of a worker that was lost stay there after Redis' clock was set ahead, which ends
        what expires.
        """
        found: dict[str, list[str]] = {}
        registry = StartedJobRegistry(keys.JUDGE_QUEUE).key
        members = cast(list[bytes], self._redis.zrange(registry, 0, _MAX_HELD - 1))
        for member in members:
            job, _, execution = member.partition(b":")
            if _JOB_ID.fullmatch(job) and _EXECUTION_ID.fullmatch(execution):
                found.setdefault(job.decode(), []).append(execution.decode())
        return found

    def _executions(self, job: str) -> list[str]:
        """Ids of the executions that a job had."""
        try:
            found = self._redis.zrange(f"{RQ_KEY_PREFIX}:executions:{job}", 0, -1)
        except ResponseError:
            return []
        return [one.decode() for one in cast(list[bytes], found) if _EXECUTION_ID.fullmatch(one)]


def _date(stored: object) -> datetime | None:
    """A date as RQ writes it; None if it is none."""
    try:
        return utcparse(stored.decode()).replace(tzinfo=UTC) if isinstance(stored, bytes) else None
    except ValueError:
        return None


# Queue a job as :meth:`JudgeQueue.put` does, for scripts that write it together with its input.
# ``meta`` is empty, or counts the deliveries that were lost.
ENQUEUE = f"""
local function enqueue(queue, job, key, sample, call, date, meta)
  redis.call('HSET', key, 'data', call, 'description', sample, 'created_at', date,
    'enqueued_at', date, {", ".join(f"'{name}', '{value}'" for name, value in _FIELDS.items())})
  if meta ~= '' then redis.call('HSET', key, 'meta', meta) end
  redis.call('RPUSH', queue, job)
end
"""

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


def text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
