"""A judge worker's side of the queue: take, renew and finish many jobs with few commands.

RQ's own worker needs about twenty round trips per job. Here a script takes several jobs at once and
another finishes one together with its verdict. Both write the keys that RQ's worker writes, so
RQ's registries show them as those of RQ's worker. Retries and clean-up are done here too, because
RQ's would import and call what the jobs in Redis name.
"""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any
from uuid import uuid4

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.typing import EncodableT
from rq import Queue
from rq.defaults import DEFAULT_WORKER_TTL, RQ_KEY_PREFIX
from rq.executions import WORKER_EXECUTIONS_KEY_TEMPLATE
from rq.registry import FailedJobRegistry, StartedJobRegistry
from rq.utils import utcformat
from rq.worker import BaseWorker

from shared.ledger import keys
from shared.ledger.ledger import WRITE_VERDICT, problem_key, verdict_arguments
from shared.ledger.packing import unpack
from shared.ledger.pipelined import MERGED, RUN_COMMANDS, Command, PipelinedRedis, Script
from shared.ledger.queue import FAILURE_TTL, JOB_RETRIES, JobCall, text
from shared.schemas import Generation, Problem, SampleId, Verdict

_MAX_REASON_CHARS = 20_000


_SCRIPT = Script(
    f"local PREFIX, RQ, QUEUE_NAME = '{keys.PREFIX}', '{RQ_KEY_PREFIX}', '{keys.JUDGE_QUEUE}'\n"
    + WRITE_VERDICT
    + resources.files(__package__).joinpath("jobs.lua").read_text()
    + RUN_COMMANDS
)


@dataclass(frozen=True, slots=True)
class TakenJob:
    """A job in a worker's hands.

    Attributes:
        id: The job's id.
        execution: The id of RQ's record of this execution.
        data: Its call as stored; empty if it was deleted.
        suspect: Whether workers were lost with it, so that it may be why.
    """

    id: str
    execution: str
    data: bytes
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """Jobs that left the queue; ``blocked`` if the next one is a suspect, for an idle worker."""

    jobs: list[TakenJob]
    blocked: bool


@dataclass(frozen=True, slots=True)
class JobInput:
    """The data that a job needs, as they were when it was taken.

    Attributes:
        run: The run's id.
        sample: The sample to judge.
        completion: None if the completion was deleted or replaced meanwhile.
        judged: Whether the sample has a verdict already.
        config: The run's config as JSON; None if the run does not exist.
        problem: As stored; None if it is missing, or was not asked for.
    """

    run: str
    sample: SampleId
    completion: Generation | None
    judged: bool
    config: str | None
    problem: bytes | None


class _WorkerScript:
    """Keys and arguments of the script for one worker."""

    def __init__(self, worker: str, lease_ttl: float) -> None:
        self._worker = worker
        self._lease_ttl = lease_ttl
        self._keys = (
            f"{Queue.redis_queue_namespace_prefix}{keys.JUDGE_QUEUE}",
            keys.woken(worker),
            StartedJobRegistry(keys.JUDGE_QUEUE).key,
            WORKER_EXECUTIONS_KEY_TEMPLATE.format(worker),
            f"{BaseWorker.redis_worker_namespace_prefix}{worker}",
            FailedJobRegistry(keys.JUDGE_QUEUE).key,
        )

    def _args(self, command: str, *args: EncodableT) -> list[Any]:
        now = datetime.now(UTC)
        times = [now.timestamp(), utcformat(now)]
        return [command, self._worker, self._lease_ttl, DEFAULT_WORKER_TTL, *times, *args]


class WorkerJobs(_WorkerScript):
    """Jobs of one worker: taking, reading and finishing, in an event loop.

    Args:
        commands: Connection shared by the tasks of the worker.
        worker: The worker's unique name, which holds the leases.
        lease_ttl: Seconds until the lease on a job expires without renewal.
    """

    def __init__(self, commands: PipelinedRedis, worker: str, *, lease_ttl: float) -> None:
        super().__init__(worker, lease_ttl)
        self._commands = commands

    async def take(self, count: int, *, idle: bool) -> Taken:
        """Take up to ``count`` jobs, and a lease on each.

        A suspect comes alone, and only if the worker has no other job (``idle``), so that a job
        that kills its workers costs no other job a delivery after the first time.
        """
        executions = [uuid4().hex for _ in range(count)]
        blocked, *found = await self._run("take", int(idle), *executions)
        jobs = [
            TakenJob(text(job), text(execution), *_read(values)) for job, execution, values in found
        ]
        return Taken(jobs, bool(blocked))

    async def drop(self, job: TakenJob) -> None:
        """Delete a job that judges nothing, and its lease."""
        await self._run("finish", job.id, job.execution, 0)

    async def wait(self, redis: AsyncRedis, timeout: float) -> None:
        """Wait until a job is enqueued, up to ``timeout`` seconds; :meth:`take` then returns it.

        A cancelled wait loses nothing: the job waits in a list of this worker's own.
        """
        queue, woken, *_ = self._keys
        await redis.blmove(queue, woken, timeout)  # type: ignore[arg-type]

    async def stop_waiting(self) -> None:
        """Return a job that a cancelled :meth:`wait` received to the queue."""
        await self._run("stop_waiting")

    async def read(self, call: JobCall, *, problem: bool) -> JobInput:
        """Read the input of a job in one round trip; its problem only if ``problem`` is true."""
        field = call.sample.key
        commands: list[Command] = [
            ("HGET", call.keys.completions, field),
            ("HEXISTS", call.keys.verdicts, field),
            ("HGET", call.keys.meta, "config"),
        ]
        if problem:
            name = problem_key(call.sample.dataset, call.sample.problem_id)
            commands.append(("HGET", call.keys.problems, name))
        packed, judged, config, *rest = await self._commands.send(commands)
        completion = None if packed is None else Generation.model_validate_json(unpack(packed))
        if completion is not None and completion.completion_sha256 != call.sha256:
            completion = None
        return JobInput(
            run=call.run,
            sample=call.sample,
            completion=completion,
            judged=bool(judged),
            config=None if config is None else text(config),
            problem=rest[0] if rest else None,
        )

    async def finish(
        self,
        job: TakenJob,
        call: JobCall,
        verdict: Verdict | None,
        seconds: float,
        cases: bytes | None = None,
    ) -> bool:
        """Write the verdict exactly once, if there is one, and delete the job and its lease.

        Packed ``cases`` are written with the verdict, or not at all.

        Returns:
            Whether the verdict was written, as :meth:`Ledger.record_verdict`.
        """
        names: Sequence[str] = call.keys.of_verdicts
        arguments: Sequence[EncodableT] = ()
        if verdict is not None:
            names, arguments = verdict_arguments(call.keys, verdict, cases)
        keys_ = (*self._keys, *names)
        written = await self._commands.run_merged(
            _SCRIPT, keys_, self._merged, "finish", job.id, job.execution, seconds, *arguments
        )
        return bool(written == 1)

    def _merged(self) -> list[Any]:
        return self._args(MERGED)

    async def _run(self, command: str, *args: EncodableT) -> Any:  # noqa: ANN401 - per command
        return await self._commands.run(_SCRIPT, self._keys, self._args(command, *args))


class HeldJobs(_WorkerScript):
    """Jobs that one worker has in hand; for threads, so the methods block.

    Args:
        redis: The ledger's server.
        worker: As in :class:`WorkerJobs`.
        lease_ttl: As in :class:`WorkerJobs`.
    """

    def __init__(self, redis: Redis, worker: str, *, lease_ttl: float) -> None:
        super().__init__(worker, lease_ttl)
        self._redis = redis
        self._script = redis.register_script(_SCRIPT.source)

    def renew(self, held: Sequence[TakenJob]) -> set[str]:
        """Renew the leases of jobs. Return the ids of those that were lost.

        Another worker has such a job, because this one did not renew the lease in time.
        """
        lost = self._run("renew", *(part for job in held for part in (job.id, job.execution)))
        return {text(job) for job in lost}

    def fail(self, job: TakenJob, reason: str) -> bool:
        """Queue a job again that raised, or record it as failed after its last retry.

        Args:
            job: The job.
            reason: Its traceback.

        Returns:
            Whether the job still exists, and no other worker has it.
        """
        failure = _packed_reason(reason)
        ended = self._run("fail", job.id, job.execution, JOB_RETRIES, FAILURE_TTL, failure)
        return bool(ended)

    def clean(self) -> None:
        """Forget executions of lost workers, and expired failures and workers, for all judges."""
        self._run("clean")

    def give_back(self) -> None:
        """Return all jobs to the head of the queue."""
        self._run("give_back")

    def _run(self, command: str, *args: EncodableT) -> Any:  # noqa: ANN401 - per command
        return self._script(keys=self._keys, args=self._args(command, *args))


def _read(values: Sequence[bytes | None]) -> tuple[bytes, bool]:
    """A job's data, and whether its meta data count lost deliveries, as the script sees it."""
    data, meta = values or (None, None)
    return data or b"", b'"losses"' in (meta or b"")


def _packed_reason(reason: str) -> str:
    """A traceback as RQ stores it with a result."""
    shown = reason[-_MAX_REASON_CHARS:].encode(errors="replace")
    return base64.b64encode(zlib.compress(shown)).decode()


def parse_problem(packed: bytes) -> Problem:
    """Parse a problem as stored."""
    return Problem.model_validate_json(unpack(packed))
