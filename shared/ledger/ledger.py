"""Ledger of runs in Redis: idempotent writes, exactly-once verdicts, redelivery of lost jobs."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from redis import Redis
from redis.client import Pipeline

from shared.canaries import CanaryRecord, CanaryReport
from shared.ledger import keys
from shared.ledger.pipelined import PipelinedRedis, Script
from shared.ledger.queue import batches
from shared.ledger.runs import RunLedger, text
from shared.schemas import Generation, InfraFailure, SampleId, Verdict
from shared.statuses import FailureKind, FinalStatus, JudgeMethod
from shared.text import pack, unpack

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
local all, unjudged = redis.call('HGETALL', hashes), {}
for i = 1, #all, 2 do
  if redis.call('HEXISTS', verdicts, all[i]) == 0 then
    table.insert(unjudged, all[i])
    table.insert(unjudged, all[i + 1])
  end
end
return unjudged
"""

# Times that a runner enqueues a completion again whose jobs end without a verdict. Redis loses
# writes once in a failover, not five times.
MAX_REDELIVERIES = 5
# Seconds after which a claim without a report is lost: its judge was killed.
_CLAIM_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class VerdictEvent:
    """An entry of a run's stream: a verdict was written."""

    entry: str
    sample: SampleId
    status: FinalStatus
    accepted: bool


class Ledger(RunLedger):
    """A run with its completions and verdicts.

    Every write is atomic (a transaction or script; only the problems of :meth:`open` are written in
    batches) and idempotent, except that a retry may increment a counter twice.
    """

    def __init__(self, redis: Redis, run: str) -> None:
        super().__init__(redis, run)
        self._write_verdict = redis.register_script(_WRITE_VERDICT.source)
        self._find_unjudged = redis.register_script(_UNJUDGED)
        self._redeliveries: Counter[tuple[SampleId, str]] = Counter()

    # Completions

    def record(self, *generations: Generation) -> None:
        """Write completions of different samples and enqueue them, in one idempotent transaction.

        A completion that differs from the stored one replaces it and deletes its verdict. Nothing
        happens if the same one is stored and judged. A failed generation gets the verdict
        ``api_error`` instead of a job.
        """
        stored = self._hmget(self._keys.hashes, [generation.sample for generation in generations])
        pipe = self._transaction()
        to_judge = []
        for generation, sha in zip(generations, stored, strict=True):
            if sha is not None and text(sha) == generation.completion_sha256:
                verdict = self.verdict(generation.sample)
                if verdict is not None and verdict.judged:
                    continue
            self._write_completion(pipe, generation)
            if generation.error is None:
                to_judge.append((generation.sample, generation.completion_sha256))
        self._put(pipe, to_judge)
        pipe.execute()

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

    def completed_count(self) -> int:
        """The number of samples that have a completion."""
        return self.redis.hlen(self._keys.hashes)

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
        job on its way to a worker is missing for an instant, so only jobs that are missing in two
        consecutive calls count. ``suspects`` is the result of the previous call: samples whose job
        was missing.

        The completions of a job that failed get jobs of their own. A completion that failed alone
        is assumed to kill its workers, and its sample becomes ``api_error``, as does one that was
        enqueued again ``MAX_REDELIVERIES`` times.
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
        """Delete the verdicts of samples and enqueue their completions by their hashes, again."""
        pipe = self._transaction()
        for sample, _ in completions:
            pipe.hdel(self._keys.verdicts, sample.key)
            pipe.hdel(self._keys.cases, sample.key)
        self._put(pipe, completions)
        pipe.execute()

    def enqueue(self, completions: Sequence[tuple[SampleId, str]]) -> None:
        """Enqueue completions by their hashes."""
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
        again = [c for c in completions if not alone and self._redeliveries[c] <= MAX_REDELIVERIES]
        for completion in set(completions) - set(again):
            self.record_verdict(unjudged_verdict(*completion, FailureKind.JUDGE_WORKER_LOST))
            del self._redeliveries[completion]
        for part in batches(again, 1 if failed else max(1, len(again))):
            self.enqueue(part)
        self.redis.hincrby(self._keys.meta, "jobs_redelivered", len(again))

    def _stored(self, key: str, samples: Sequence[SampleId]) -> Iterator[tuple[SampleId, bytes]]:
        for chunk in batches(samples, 200):
            for sample, stored in zip(chunk, self._hmget(key, chunk), strict=True):
                if stored is not None:
                    yield sample, stored

    def _hmget(self, key: str, samples: Sequence[SampleId]) -> list[bytes | None]:
        return cast(list[bytes | None], self.redis.hmget(key, [s.key for s in samples]))


class CanaryLedger:
    """Rounds of canaries of one run, whose judges replace a claim (Unix time) by a report."""

    def __init__(self, redis: Redis, run: str) -> None:
        self._redis = redis
        self._key = keys.RunKeys(run).canaries

    def outstanding(self) -> int:
        """Number of rounds that judges are at work on."""
        _, claims = self._rounds()
        return sum(time.time() - _CLAIM_SECONDS < claimed for claimed in claims)

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


def unjudged_verdict(sample: SampleId, completion_sha256: str, reason: str) -> Verdict:
    """Create the ``api_error`` verdict of a sample that an infrastructure failure left unjudged."""
    return Verdict(
        **asdict(sample),
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
    status, accepted = verdict.final_status.value, int(verdict.accepted)
    sha, document = verdict.completion_sha256, verdict.model_dump_json()
    arguments: list[str | int | bytes] = [verdict.sample.key, sha, document, status, accepted]
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


def entries(reply: Any) -> Iterator[tuple[str, dict[bytes, bytes]]]:  # noqa: ANN401 - RESP2 or 3
    """Yield id and fields of the entries in a reply to XREAD of one stream."""
    streams = list(reply.values()) if isinstance(reply, dict) else [rows for _, rows in reply or []]
    for rows in streams:
        for entry, fields in rows[0] if isinstance(reply, dict) else rows:
            yield text(entry), fields
