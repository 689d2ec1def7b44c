"""Runs in Redis: meta data, problems, state and lock of each, list and progress of all."""

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import JsonValue, ValidationError
from redis import Redis
from redis.client import Pipeline

from shared.canaries import CanaryRecord
from shared.errors import OutputError
from shared.ledger import keys
from shared.ledger.connection import claim_ledger
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
from shared.schemas import Problem, SampleId, describe
from shared.text import pack, unpack
from shared.versions import release

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
INCARNATION = "incarnation"
_PLAN = "plan"
PLANNED = "planned"
"""Field of the number of planned samples."""
_LARGE = (INCARNATION.encode(), _PLAN.encode(), b"results")
# The protocol is derived from the config.
_NOT_SHOWN = (INCARNATION.encode(), _PLAN.encode(), PLANNED.encode(), b"protocol")
# Fields that a new session does not overwrite: counters, and fields written when the run ends.
_COUNTED = {*Lifecycle.model_fields, "publish_error"} - {"state", "started_at"}


class RunLedger:
    """Meta data, plan, problems, state and lock of ``run``, on the server ``redis``."""

    def __init__(self, redis: Redis, run: str) -> None:
        self.run = run
        self.queue = JudgeQueue.of_run(redis, run)
        self.redis = redis
        self._keys = keys.RunKeys(run)
        self._take_lock = redis.register_script(_TAKE_LOCK)
        self._release_lock = redis.register_script(_RELEASE_LOCK)

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
            for name, stored in _plan_fields(plan).items():
                pipe.hsetnx(self._keys.meta, name, stored)
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
        """The run's plan; None if it is not stored. Raises as :meth:`meta`."""
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
        fields = _plan_fields(plan) | {"stopped": stopped.model_dump_json()}
        fields[INCARNATION] = json.dumps(uuid.uuid4().hex)
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

    def unlock(self, holder: str) -> None:
        """Release the lock if ``holder`` still holds it."""
        self._release_lock(keys=[self._keys.lock], args=[holder])

    def _transaction(self) -> Pipeline:
        pipe = self.redis.pipeline(transaction=True)
        pipe.multi()  # else RQ calls multi() itself, which fails if commands are queued already
        return pipe


def _plan_fields(plan: RunPlan) -> dict[Any, Any]:
    planned = sum(len(dataset.owed) for dataset in plan.datasets)
    return {_PLAN: plan.model_dump_json(), PLANNED: planned}


def list_runs(redis: Redis) -> list[str]:
    """The ids of all runs in the ledger, sorted."""
    return sorted(map(text, cast(set[bytes], redis.smembers(keys.RUNS))))


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Snapshot of a run's progress.

    ``incarnation`` changes when the run is deleted and created again. ``state`` is None before the
    runner has set it. ``last_event`` is the id of the newest of the ``events`` entries in the run's
    stream, ``0`` without any. ``locked``: a runner is at work on it.
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


def entry_order(entry: str) -> tuple[int, int]:
    """Return the sort key of an entry id."""
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds), int(sequence or 0)


def problem_key(dataset: str, problem_id: str) -> str:
    """Field of a problem in the hash of problems."""
    return SampleId(dataset, problem_id).key.rsplit("/", 1)[0]


def text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
