"""Ledger of runs in Redis: idempotent writes, exactly-once verdicts, redelivery of lost jobs."""

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from pydantic import JsonValue, ValidationError
from redis import Redis
from redis.client import Pipeline

from shared.canaries import CanaryRecord, CanaryReport
from shared.errors import OutputError
from shared.ledger import keys
from shared.ledger.connection import claim_ledger
from shared.ledger.pipelined import PipelinedRedis, Script
from shared.ledger.queue import JudgeQueue, batches
from shared.run_record import (
    JsonObject,
    Lifecycle,
    PublishedResults,
    RunMeta,
    RunnerReport,
    RunPlan,
    RunState,
    StoppedEarly,
)
from shared.schemas import Generation, InfraFailure, Problem, SampleId, Verdict, describe
from shared.statuses import FailureKind, FinalStatus, JudgeMethod
from shared.text import pack, unpack
from shared.versions import release

# Exactly-once verdict: the first one wins, and a verdict on a completion that has been replaced
# since is dropped. Returns 1 if written, 0 if there was a verdict, -1 for another completion. The
# cases go with it, if the run records them.
_WRITE_VERDICT = Script("""
local hashes, verdicts, events, meta, cases = unpack(KEYS)
local sample, sha, verdict, status, accepted, packed = unpack(ARGV)
if redis.call('HGET', hashes, sample) ~= sha then return -1 end
if redis.call('HSETNX', verdicts, sample, verdict) == 0 then
  if redis.call('HGET', verdicts, sample) ~= verdict then
    redis.call('HINCRBY', meta, 'duplicate_verdicts', 1)
  end
  return 0
end
redis.call('XADD', events, '*', 'sample', sample, 'status', status, 'accepted', accepted)
redis.call('HINCRBY', meta, 'verdicts_written', 1)
if packed then redis.call('HSET', cases, sample, packed) end
return 1
""")

# The completions without a verdict, as sample and hash in turn. Asked of the server, because most
# samples of a long run have one.
_UNJUDGED = """
local hashes, verdicts = unpack(KEYS)
local all, found = redis.call('HGETALL', hashes), {}
for i = 1, #all, 2 do
  if redis.call('HEXISTS', verdicts, all[i]) == 0 then
    table.insert(found, all[i])
    table.insert(found, all[i + 1])
  end
end
return found
"""

# Only the holder may renew or release the lock: it may have expired, and another runner may hold
# it.
_TAKE_LOCK = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE_LOCK = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
# Problems may have large tests.
_PROBLEMS_AT_ONCE = 20
# Times that a runner enqueues a completion again whose jobs end without a verdict. Redis loses
# writes once in a failover, not five times.
MAX_REDELIVERIES = 5
CLAIM_SECONDS = 60.0
"""Seconds after which a claim without a report is lost: its judge was killed."""
INCARNATION = "incarnation"
_PLAN = "plan"
# Number of planned samples.
PLANNED = "planned"
_LARGE = (INCARNATION.encode(), _PLAN.encode(), b"results")
# The protocol is derived from the config.
_NOT_SHOWN = (INCARNATION.encode(), _PLAN.encode(), PLANNED.encode(), b"protocol")
# Fields that a new session does not overwrite: counters, and fields written when the run ends.
_COUNTED = {*Lifecycle.model_fields, "publish_error"} - {"state", "started_at"}


@dataclass(frozen=True, slots=True)
class VerdictEvent:
    """An entry of a run's stream: a verdict was written."""

    entry: str
    sample: SampleId
    status: FinalStatus
    accepted: bool


class Ledger:
    """Completions, verdicts, state and lock of ``run``, on the server ``redis``.

    Every write is atomic (a transaction or script; only the problems of :meth:`open` are written in
    batches) and idempotent, except that a retry may increment a counter twice.
    """

    def __init__(self, redis: Redis, run: str) -> None:
        self.run = run
        self.queue = JudgeQueue.of_run(redis, run)
        self.redis = redis
        self._keys = keys.RunKeys(run)
        self._write_verdict = redis.register_script(_WRITE_VERDICT.source)
        self._take_lock = redis.register_script(_TAKE_LOCK)
        self._release_lock = redis.register_script(_RELEASE_LOCK)
        self._find_unjudged = redis.register_script(_UNJUDGED)
        self._redeliveries: Counter[tuple[SampleId, str]] = Counter()

    # Meta data and state

    def open(self, meta: RunMeta, plan: RunPlan | None, problems: Iterable[Problem]) -> None:
        """Begin a session: create the run, or resume it.

        Plan, problems and start time of the first session are kept. Other fields are replaced by
        the latest session's, unless they are None. Counters are kept.

        Raises:
            OtherVersionError: A later release has written to this ledger.
        """
        claim_ledger(self.redis)
        pipe = self._transaction()
        pipe.sadd(keys.RUNS, self.run)
        pipe.hsetnx(self._keys.meta, INCARNATION, json.dumps(uuid.uuid4().hex))
        if plan is not None:
            pipe.hsetnx(self._keys.meta, _PLAN, plan.model_dump_json())
            pipe.hsetnx(self._keys.meta, PLANNED, sum(len(one.owed) for one in plan.datasets))
        for name, value in meta.model_dump(mode="json", exclude=_COUNTED).items():
            first_wins = name == "started_at" or value is None
            (pipe.hsetnx if first_wins else pipe.hset)(self._keys.meta, name, json.dumps(value))
        for problem in problems:
            field = problem_key(problem.dataset, problem.problem_id)
            pipe.hsetnx(self._keys.problems, field, pack(problem.model_dump_json()))
            if len(pipe) >= 200:
                pipe.execute()
        pipe.hincrby(self._keys.meta, "sessions", 1)
        pipe.hdel(self._keys.meta, "publish_error")
        pipe.execute()

    def meta(self) -> RunMeta | None:
        """The run's meta data; None if the run does not exist.

        Raises:
            OutputError: The meta data are invalid, because another version of Plumbline wrote them.
        """
        document = self._document(_LARGE)
        if not document:
            return None
        try:
            return RunMeta.model_validate(document)
        except ValidationError as error:
            raise self._unreadable("meta data", error) from None

    def _unreadable(self, what: str, error: ValidationError) -> OutputError:
        return OutputError(
            f"the {what} of run {self.run} in Redis cannot be read ({describe(error)}); "
            f"another Plumbline than this one ({release()}) wrote it: resume the run with that one"
        )

    def meta_document(self) -> JsonObject:
        """The meta data as stored, for display; includes ``results`` once they are published."""
        return self._document(_NOT_SHOWN)

    def _document(self, without: Sequence[bytes]) -> JsonObject:
        stored = cast(list[bytes], self.redis.hkeys(self._keys.meta))
        if not (names := [name for name in stored if name not in without]):
            return {}
        values = cast(list[bytes | None], self.redis.hmget(self._keys.meta, names))
        pairs = zip(names, values, strict=True)
        return {text(name): json.loads(value) for name, value in pairs if value is not None}

    def plan(self) -> RunPlan | None:
        """The run's plan; None if it is not stored.

        Raises:
            OutputError: As :meth:`meta`.
        """
        stored = cast(bytes | None, self.redis.hget(self._keys.meta, _PLAN))
        try:
            return None if stored is None else RunPlan.model_validate_json(stored)
        except ValidationError as error:
            raise self._unreadable("plan", error) from None

    def incarnation(self) -> str | None:
        """Unique id that distinguishes a run from a deleted one of the same id; None if no run."""
        return cast(str | None, self._get(INCARNATION))

    def set_state(self, state: RunState) -> None:
        self._set(state=state)

    def stop_early(self, plan: RunPlan, stopped: StoppedEarly) -> None:
        """Reduce the run to the samples of ``plan``; what the others have is deleted.

        The run gets another incarnation, so an index reads it again.
        """
        self.queue.forget(map(text, cast(list[bytes], self.redis.hvals(self._keys.jobs))))
        kept = {sample.key.encode() for sample in plan.each_sample()}
        pipe = self._transaction()
        for name in self._keys.of_samples:
            if extra := set(cast(list[bytes], self.redis.hkeys(name))) - kept:
                pipe.hdel(name, *extra)
        fields: dict[Any, Any] = {
            INCARNATION: json.dumps(uuid.uuid4().hex),
            _PLAN: plan.model_dump_json(),
            PLANNED: sum(len(one.owed) for one in plan.datasets),
            "stopped": stopped.model_dump_json(),
        }
        pipe.hset(self._keys.meta, mapping=fields)
        pipe.execute()

    def finish(self, at: float) -> None:
        """Record the Unix time of the last verdict."""
        self._set(finished_at=at)

    def publish(
        self, state: RunState, results: PublishedResults, canaries: CanaryRecord | None = None
    ) -> None:
        """Record that the artifacts are written, with their metrics and the canaries."""
        document = None if canaries is None else canaries.model_dump(mode="json")
        self._set(results=results.model_dump(mode="json"), canaries=document, state=state)

    def fail(self, reason: str) -> None:
        """Record that the artifacts could not be written."""
        self._set(publish_error=reason, state=RunState.FAILED)

    def add_active_seconds(self, seconds: float) -> None:
        self.redis.hincrbyfloat(self._keys.meta, "active_seconds", seconds)

    def report(self, report: RunnerReport) -> None:
        """Replace the runner's report, which the page shows."""
        self._set(runner=report.model_dump(mode="json"))

    def state(self) -> RunState | None:
        stored = self._get("state")
        return None if stored is None else RunState(str(stored))

    def _get(self, field: str) -> JsonValue:
        stored = cast(bytes | None, self.redis.hget(self._keys.meta, field))
        return None if stored is None else cast(JsonValue, json.loads(stored))

    def _set(self, **values: JsonValue) -> None:
        self.redis.hset(
            self._keys.meta, mapping={name: json.dumps(value) for name, value in values.items()}
        )

    def delete(self) -> None:
        """Delete the run and its jobs. The lock stays."""
        jobs = cast(list[bytes], self.redis.hvals(self._keys.jobs))
        self.queue.forget(map(text, jobs))
        pipe = self._transaction()
        pipe.delete(*self._keys.all)
        pipe.srem(keys.RUNS, self.run)
        pipe.execute()

    def problem(self, dataset: str, problem_id: str) -> Problem | None:
        return next(self.problems([SampleId(dataset, problem_id)]), None)

    def problems(self, samples: Sequence[SampleId]) -> Iterator[Problem]:
        """Yield the problems of ``samples`` in their order; skips problems that are missing."""
        for chunk in batches(samples, _PROBLEMS_AT_ONCE):
            names = [problem_key(sample.dataset, sample.problem_id) for sample in chunk]
            for packed in cast(list[bytes | None], self.redis.hmget(self._keys.problems, names)):
                if packed is not None:
                    yield Problem.model_validate_json(unpack(packed))

    # Lock: one runner at a time

    def lock(self, holder: str, ttl: float) -> bool:
        """Acquire or renew the run's lock for ``ttl`` seconds; False if another runner holds it."""
        return bool(self._take_lock(keys=[self._keys.lock], args=[holder, int(ttl * 1000)]))

    def locked(self) -> bool:
        """Whether a runner holds the run's lock."""
        return bool(self.redis.exists(self._keys.lock))

    def unlock(self, holder: str) -> None:
        """Release the lock if ``holder`` still holds it."""
        self._release_lock(keys=[self._keys.lock], args=[holder])

    # Completions

    def record(self, *generations: Generation) -> None:
        """Write completions of different samples, and enqueue jobs with them (idempotent).

        All is one transaction. A completion that differs from the stored one replaces it and
        deletes its verdict. Nothing happens if the same completion is stored and judged. A failed
        generation gets the verdict ``api_error`` instead of a job.
        """
        stored = self._hmget(self._keys.hashes, [one.sample for one in generations])
        pipe = self._transaction()
        to_judge = []
        for generation, sha in zip(generations, stored, strict=True):
            if sha is None or self._replaces(generation, text(sha)):
                self._write_completion(pipe, generation)
                if generation.error is None:
                    to_judge.append((generation.sample, generation.completion_sha256))
        self._put(pipe, to_judge)
        pipe.execute()

    def _replaces(self, generation: Generation, stored: str) -> bool:
        """Whether a completion must be judged although one is stored."""
        if stored != generation.completion_sha256:
            return True
        verdict = self.verdict(generation.sample)
        return verdict is None or not verdict.judged

    def _write_completion(self, pipe: Pipeline, generation: Generation) -> None:
        sample = generation.sample
        pipe.hset(self._keys.completions, sample.key, pack(generation.model_dump_json()))
        pipe.hset(self._keys.hashes, sample.key, generation.completion_sha256)
        pipe.hdel(self._keys.verdicts, sample.key)
        pipe.hdel(self._keys.cases, sample.key)
        pipe.hincrby(self._keys.meta, "completions_written", 1)
        pipe.hincrby(self._keys.meta, "generation_requests", generation.requests)
        if generation.error is not None:
            sha = generation.completion_sha256
            unjudged = unjudged_verdict(sample, sha, generation.error)
            event = {"sample": sample.key, "status": unjudged.final_status.value, "accepted": 0}
            pipe.hset(self._keys.verdicts, sample.key, unjudged.model_dump_json())
            pipe.xadd(self._keys.events, cast(dict[Any, Any], event))
            pipe.hincrby(self._keys.meta, "verdicts_written", 1)

    def completion(self, sample: SampleId) -> Generation | None:
        return next(self.completions([sample]), None)

    def completions(self, samples: Sequence[SampleId]) -> Iterator[Generation]:
        """Yield the completions of ``samples`` in their order; skips samples without one."""
        for _, packed in self._stored(self._keys.completions, samples):
            yield Generation.model_validate_json(unpack(packed))

    def completed(self) -> dict[SampleId, str]:
        """SHA-256 of every completion."""
        hashes = cast(dict[bytes, bytes], self.redis.hgetall(self._keys.hashes))
        return {sample_of(key): text(sha) for key, sha in hashes.items()}

    def completed_count(self) -> int:
        """The number of samples that have a completion."""
        return self.redis.hlen(self._keys.hashes)

    # Verdicts

    def record_verdict(self, verdict: Verdict, cases: bytes | None = None) -> bool:
        """Write a verdict, with its packed cases, exactly once; return whether it was written.

        It is not written if the sample has a verdict, or if its completion has been replaced.
        """
        names, args = _verdict_arguments(self._keys, verdict, cases)
        return bool(self._write_verdict(keys=names, args=args) == 1)

    def verdict(self, sample: SampleId) -> Verdict | None:
        return next(self.verdicts([sample]), None)

    def verdicts(self, samples: Sequence[SampleId]) -> Iterator[Verdict]:
        """Yield the verdicts of ``samples`` in their order; skips samples without one."""
        for _, document in self._stored(self._keys.verdicts, samples):
            yield Verdict.model_validate_json(document)

    def cases(self, samples: Sequence[SampleId]) -> Iterator[tuple[SampleId, bytes]]:
        """Yield samples whose cases were recorded, with what ``shared.case_records`` packed."""
        yield from self._stored(self._keys.cases, samples)

    def judged(self) -> set[SampleId]:
        """The samples with a verdict, including those that could not be judged."""
        samples = cast(list[bytes], self.redis.hkeys(self._keys.verdicts))
        return {sample_of(key) for key in samples}

    def judged_count(self) -> int:
        """The number of samples with a verdict."""
        return self.redis.hlen(self._keys.verdicts)

    def events(
        self, after: str = "0", block: float | None = None, count: int = 1000
    ) -> list[VerdictEvent]:
        """Read up to ``count`` entries after ``after``; waits up to ``block`` seconds for one."""
        reply = self.redis.xread(
            {self._keys.events: after},
            count=count,
            block=None if block is None else max(1, int(block * 1000)),
        )
        return [
            VerdictEvent(
                entry=entry,
                sample=sample_of(fields[b"sample"]),
                status=FinalStatus(text(fields[b"status"])),
                accepted=fields[b"accepted"] == b"1",
            )
            for entry, fields in entries(reply)
        ]

    def last_event(self) -> str:
        """The id of the newest entry of the stream; ``0`` if the stream is empty."""
        newest = cast(list[tuple[bytes, Any]], self.redis.xrevrange(self._keys.events, count=1))
        return text(newest[0][0]) if newest else "0"

    # Redelivery

    def requeue_lost(self, suspects: set[SampleId]) -> set[SampleId]:
        """Enqueue lost jobs again (at-least-once delivery).

        RQ recovers the jobs of workers that die. A job is lost if RQ does not have it: its worker
        died before it started the job, Redis lost its last writes, or RQ's retries are used up. A
        job that is on its way to a worker is missing for an instant, so only jobs that are missing
        in two consecutive calls are enqueued again.

        The completions of a job that failed get jobs of their own. A completion that failed alone
        is assumed to kill its workers, and its sample becomes ``api_error``, as does one that was
        enqueued again ``MAX_REDELIVERIES`` times.

        ``suspects`` is the result of the previous call. Returns the samples whose job is missing
        now, for the next call.
        """
        unjudged = self._unjudged()
        if not unjudged:
            return set()
        jobs = dict(zip(unjudged, self._hmget(self._keys.jobs, list(unjudged)), strict=True))
        present = self.queue.present()
        missing = {sample for sample, job in jobs.items() if not job or text(job) not in present}
        lost: dict[str, list[tuple[SampleId, str]]] = {}
        for sample in sorted(missing & suspects):
            lost.setdefault(text(jobs[sample] or b""), []).append((sample, unjudged[sample]))
        for job, completions in lost.items():
            self._redeliver(job, completions)
        return missing - suspects

    def _unjudged(self) -> dict[SampleId, str]:
        """SHA-256 of the completion of every sample that has one and no verdict."""
        names = [self._keys.hashes, self._keys.verdicts]
        fields = cast(list[bytes], self._find_unjudged(keys=names))
        pairs = zip(fields[::2], fields[1::2], strict=True)
        return {sample_of(key): text(sha) for key, sha in pairs}

    def rejudge(self, completions: Sequence[tuple[SampleId, str]]) -> None:
        """Delete the verdicts of samples and enqueue their completions, given by hash, again."""
        pipe = self._transaction()
        for sample, _ in completions:
            pipe.hdel(self._keys.verdicts, sample.key)
            pipe.hdel(self._keys.cases, sample.key)
        self._put(pipe, completions)
        pipe.execute()

    def enqueue(self, completions: Sequence[tuple[SampleId, str]]) -> None:
        """Enqueue completions, given by hash."""
        pipe = self._transaction()
        self._put(pipe, completions)
        pipe.execute()

    def _put(self, pipe: Pipeline, completions: Sequence[tuple[SampleId, str]]) -> None:
        for batch in batches(completions):
            job = self.queue.put(pipe, self.run, batch)
            pipe.hset(self._keys.jobs, mapping=dict.fromkeys((s.key for s, _ in batch), job))

    def _redeliver(self, job: str, completions: Sequence[tuple[SampleId, str]]) -> None:
        failed = bool(job) and self.queue.has_failed(job)
        self.queue.forget(filter(None, [job]))
        self._redeliveries.update(completions)
        alone = failed and len(completions) == 1
        again = []
        for completion in completions:
            if alone or self._redeliveries[completion] > MAX_REDELIVERIES:
                self.record_verdict(unjudged_verdict(*completion, FailureKind.JUDGE_WORKER_LOST))
                del self._redeliveries[completion]
            else:
                again.append(completion)
        for part in batches(again, 1 if failed else max(1, len(again))):
            self.enqueue(part)
        self.redis.hincrby(self._keys.meta, "jobs_redelivered", len(again))

    def _transaction(self) -> Pipeline:
        pipe = self.redis.pipeline(transaction=True)
        pipe.multi()  # else RQ calls multi() itself, which fails if commands are queued already
        return pipe

    def _stored(self, key: str, samples: Sequence[SampleId]) -> Iterator[tuple[SampleId, bytes]]:
        for chunk in batches(samples, 200):
            for sample, stored in zip(chunk, self._hmget(key, chunk), strict=True):
                if stored is not None:
                    yield sample, stored

    def _hmget(self, key: str, samples: Sequence[SampleId]) -> list[bytes | None]:
        return cast(list[bytes | None], self.redis.hmget(key, [s.key for s in samples]))


class CanaryLedger:
    """Rounds of one run. A judge claims a round with the Unix time, and replaces the claim by its
    report.
    """

    def __init__(self, redis: Redis, run: str) -> None:
        self._redis = redis
        self._key = keys.RunKeys(run).canaries

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        """The canaries of a ledger's run."""
        return cls(ledger.redis, ledger.run)

    def outstanding(self) -> int:
        """Number of rounds that judges are at work on."""
        _, claims = self._rounds()
        return sum(time.time() - CLAIM_SECONDS < claimed for claimed in claims)

    def record(self) -> CanaryRecord:
        """Sum up the reports."""
        reports, claims = self._rounds()
        return CanaryRecord.of(list(reports.values()), len(claims))

    def forget(self, *, keep: int) -> None:
        """Delete all reports but the latest ``keep``, for a session without an end."""
        reports, _ = self._rounds()
        latest_last = sorted(reports, key=lambda field: reports[field].at)
        if old := latest_last[: max(0, len(reports) - keep)]:
            self._redis.hdel(self._key, *old)

    def _rounds(self) -> tuple[dict[bytes, CanaryReport], list[float]]:
        """Reports by field, and the times of claims without a report."""
        reports, claims = {}, []
        for field, stored in cast(dict[bytes, bytes], self._redis.hgetall(self._key)).items():
            if stored.startswith(b"{"):
                reports[field] = CanaryReport.model_validate_json(stored)
            else:
                claims.append(float(stored))
        return reports, claims


def list_runs(redis: Redis) -> list[str]:
    """The ids of all runs in the ledger, sorted."""
    return sorted(map(text, cast(set[bytes], redis.smembers(keys.RUNS))))


def entry_order(entry: str) -> tuple[int, int]:
    """Return the sort key of an entry id."""
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds), int(sequence or 0)


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Snapshot of a run's progress.

    ``incarnation`` changes when the run is deleted and created again. ``state`` is None before the
    runner has set it. ``last_event`` is the id of the newest of the ``events`` entries in the run's
    stream, ``0`` without any. ``completions`` counts the samples that have one. ``locked``: a
    runner is at work on it.
    """

    run: str
    incarnation: str
    state: RunState | None
    last_event: str
    events: int
    completions: int
    locked: bool = False


def runs_progress(redis: Redis) -> list[RunProgress]:
    """Read the progress of all runs, sorted by id, in two round trips.

    A run that is deleted at the same time is left out.
    """
    runs = list_runs(redis)
    pipe = redis.pipeline(transaction=False)
    for run in runs:
        names = keys.RunKeys(run)
        pipe.hmget(names.meta, [INCARNATION, "state"])
        pipe.xrevrange(names.events, count=1)
        pipe.xlen(names.events)
        pipe.hlen(names.hashes)
        pipe.exists(names.lock)
    replies: list[Any] = pipe.execute()
    return [
        RunProgress(
            run=run,
            incarnation=str(json.loads(incarnation)),
            state=None if state is None else RunState(json.loads(state)),
            last_event=text(newest[0][0]) if newest else "0",
            events=events,
            completions=completions,
            locked=bool(locked),
        )
        for run, (incarnation, state), newest, events, completions, locked in zip(
            runs, *(replies[part::5] for part in range(5)), strict=True
        )
        if incarnation is not None
    ]


def problem_key(dataset: str, problem_id: str) -> str:
    """Field of a problem in the hash of problems."""
    return SampleId(dataset, problem_id).key.rsplit("/", 1)[0]


def unjudged_verdict(sample: SampleId, completion_sha256: str, reason: str) -> Verdict:
    """Create the ``api_error`` verdict of a sample that an infrastructure failure left unjudged."""
    return Verdict(
        dataset=sample.dataset,
        problem_id=sample.problem_id,
        sample_index=sample.sample_index,
        completion_sha256=completion_sha256,
        final_status=FinalStatus.API_ERROR,
        detail=reason,
        accepted=False,
        pass_ratio=0.0,
        cases_passed=0,
        cases_total=0,
        total_judge_time=0.0,
        method=JudgeMethod.NONE,
        checker="none",
        infra_failures=[InfraFailure.model_validate(reason)],
        judged_at=time.time(),
    )


def _verdict_arguments(
    names: keys.RunKeys, verdict: Verdict, cases: bytes | None
) -> tuple[list[str], list[str | int | bytes]]:
    """Keys and arguments of the script that writes a verdict; without cases none is about them."""
    arguments: list[str | int | bytes] = [
        verdict.sample.key,
        verdict.completion_sha256,
        verdict.model_dump_json(),
        verdict.final_status.value,
        int(verdict.accepted),
    ]
    if cases is None:
        return [*names.of_verdicts], arguments
    return [*names.of_verdicts, names.cases], [*arguments, cases]


async def write_verdict(
    commands: PipelinedRedis, names: keys.RunKeys, verdict: Verdict, cases: bytes | None
) -> bool:
    """As :meth:`Ledger.record_verdict`, in an event loop."""
    written = await commands.run(_WRITE_VERDICT, *_verdict_arguments(names, verdict, cases))
    return bool(written == 1)


def sample_of(key: bytes) -> SampleId:
    """Parse the key of a sample."""
    return SampleId.parse(text(key))


def text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def entries(reply: Any) -> Iterator[tuple[str, dict[bytes, bytes]]]:  # noqa: ANN401 - RESP2 or 3
    """Yield id and fields of the entries in a reply to XREAD of one stream."""
    streams = list(reply.values()) if isinstance(reply, dict) else [rows for _, rows in reply or []]
    for rows in streams:
        for entry, fields in rows[0] if isinstance(reply, dict) else rows:
            yield text(entry), fields
