"""Ledger of a reward session: completions that are judged for a trainer, and remembered answers.

A session has the keys of a run, so that judges treat its samples as those of a run. Unlike a run it
has no end: what was answered is dropped, and the answer itself expires.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from importlib import resources
from typing import Any, Self

from pydantic import Field
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.typing import EncodableT

from shared.ledger import keys
from shared.ledger.ledger import Ledger, entries
from shared.ledger.pipelined import PipelinedRedis, Script
from shared.ledger.runs import text
from shared.schemas import Generation, Part, Verdict, sha256
from shared.statuses import FinalStatus
from shared.text import pack

_SCRIPT = Script(resources.files(__package__).joinpath("rewards.lua").read_text())
# Samples of one call of the script, which Redis runs without interruption.
AT_ONCE = 64
# Seconds for which a problem stays in Redis after its last sample: longer than any request waits.
_PROBLEM_KEPT = 7200.0
_FORGOTTEN_AT_ONCE = 200
# Seconds for which entries of the stream are kept; who misses one finds the verdict anyway.
_STREAM_KEPT = 120.0
# Hex digits of the completion's hash that are the sample's index.
_INDEX_DIGITS = 15


class SampleState(IntEnum):
    """State of a sample in Redis, other than remembered; the numbers are the script's."""

    GONE = 0
    """Not in flight: never submitted, abandoned, or lost with Redis' last writes."""
    WAITING = 1
    JUDGED = 2
    """It has a verdict, which is not settled yet."""
    NO_PROBLEM = 3
    """Its problem is not in Redis, so it was not queued."""
    NEW = 4
    """It is in flight now, and needs a job."""


class RewardAnswer(Part):
    """The part of a verdict that is answered and remembered.

    ``judge_seconds`` is the sum of the cases' durations, ``first_failed`` the index of the first
    case that did not pass; ``denied`` is that case's. Fields with their default are not stored.
    """

    status: FinalStatus
    detail: str | None = None
    accepted: bool = False
    pass_ratio: float = Field(default=0.0, ge=0, le=1)
    cases_passed: int = Field(default=0, ge=0)
    cases_total: int = Field(default=0, ge=0)
    cases_not_run: int = Field(default=0, ge=0)
    first_failed: int | None = None
    denied: bool = False
    judge_seconds: float = Field(default=0.0, ge=0)

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        failed = verdict.first_failed_case
        same = {"detail", "accepted", "pass_ratio", "cases_passed", "cases_total", "cases_not_run"}
        return cls(
            **verdict.model_dump(include=same),
            status=verdict.final_status,
            first_failed=failed and failed.case_index,
            denied=failed is not None and failed.denied,
            judge_seconds=round(verdict.total_judge_time, 6),
        )

    @property
    def judged(self) -> bool:
        """Whether it says something about the completion; otherwise it is never remembered."""
        return self.status is not FinalStatus.API_ERROR

    @property
    def document(self) -> str:
        """The answer as it is remembered; empty if it is not."""
        return self.model_dump_json(exclude_defaults=True) if self.judged else ""


@dataclass(frozen=True, slots=True)
class RewardSample:
    """A completion to judge, which UTF-8 can encode.

    The same problem and completion have the same ``key`` everywhere.
    """

    generation: Generation
    key: str

    @classmethod
    def of(cls, dataset: str, problem_id: str, digest: str, completion: str) -> Self:
        """``digest`` is the problem's, so that contents never mix."""
        sha = sha256(completion)
        generation = Generation(
            dataset=dataset,
            problem_id=f"{problem_id}#{digest}",
            sample_index=int(sha[:_INDEX_DIGITS], 16),
            completion=completion,
            completion_sha256=sha,
        )
        return cls(generation, generation.sample.key)

    @property
    def problem(self) -> str:
        """Key of the problem's record in the ledger."""
        return self.key.rpartition("/")[0]


class SessionClosedError(Exception):
    """The session is not in Redis, because it is new or Redis lost its data."""


class RewardLedger:
    """Samples of one session, for one event loop.

    ``redis`` is for waiting, ``jobs`` for enqueueing by RQ in threads, ``commands`` for the rest.
    The id ``run`` is ``reward/<16 hex digits>``. An answer is remembered for ``remember`` seconds.
    """

    def __init__(
        self, redis: AsyncRedis, commands: PipelinedRedis, jobs: Redis, run: str, *, remember: float
    ) -> None:
        self.run = run
        self._jobs = Ledger(jobs, run)
        self._redis = redis
        self._commands = commands
        self._keys = keys.RunKeys(run)
        self._remember = max(1, round(remember))
        names = self._keys
        self._script_keys = [
            *(names.meta, names.problems, names.completions, names.hashes, names.verdicts),
            *(names.jobs, names.used, self._jobs.queue.key),
        ]

    async def open(self, config: str) -> None:
        """Write the config (JSON) by which judges judge the session's samples."""
        await self._commands.send([("HSET", self._keys.meta, "config", config)])

    async def submit(self, samples: Sequence[RewardSample]) -> list[SampleState | RewardAnswer]:
        """Queue the samples that are neither remembered nor in flight (idempotent).

        They are ``AT_ONCE`` different ones at most. Returns their states, in order.

        Raises:
            SessionClosedError: Nothing was queued; :meth:`open` the session first.
            RedisError: Redis is unavailable.
        """
        if not samples:
            return []
        args: list[EncodableT] = []
        for sample in samples:
            record = pack(sample.generation.model_dump_json())
            args += (sample.key, sample.generation.completion_sha256, record, sample.problem)
        answers = [self._keys.answer(sample.key) for sample in samples]
        states = list(map(_state, await self._run("submit", answers, *args)))
        if not states:
            raise SessionClosedError
        generations = (sample.generation for sample in samples)
        new = [g for g, state in zip(generations, states, strict=True) if state is SampleState.NEW]
        if new:  # the upkeep enqueues them if this process ends now
            hashes = [(generation.sample, generation.completion_sha256) for generation in new]
            await asyncio.to_thread(self._jobs.enqueue, hashes)
        return [SampleState.WAITING if state is SampleState.NEW else state for state in states]

    async def bring(self, problems: Mapping[str, bytes]) -> None:
        """Store packed problems by their keys, for samples that are submitted next."""
        stored = [part for item in problems.items() for part in item]
        used = [part for key in problems for part in (time.time(), key)]
        if problems:
            await self._commands.send(
                [("HSET", self._keys.problems, *stored), ("ZADD", self._keys.used, *used)]
            )

    async def look(self, samples: Sequence[str]) -> list[SampleState | RewardAnswer]:
        """States of samples by their keys, without a change."""
        answers = [self._keys.answer(sample) for sample in samples]
        return list(map(_state, await self._run("look", answers, *samples)))

    async def verdicts(self, samples: Sequence[str]) -> dict[str, RewardAnswer]:
        """Answers from verdicts that are not settled yet, by the samples' keys."""
        if not samples:
            return {}
        [verdicts] = await self._commands.send([("HMGET", self._keys.verdicts, *samples)])
        return {
            sample: RewardAnswer.of(Verdict.model_validate_json(verdict))
            for sample, verdict in zip(samples, verdicts, strict=True)
            if verdict is not None
        }

    async def settle(self, answers: Mapping[str, RewardAnswer]) -> None:
        """Remember answers, and drop all else of their samples; an ``api_error`` is forgotten."""
        names = list(answers)
        for start in range(0, len(names), AT_ONCE):
            chunk = names[start : start + AT_ONCE]
            args: list[EncodableT] = [self._remember]
            for sample in chunk:
                args += (sample, answers[sample].document)
            await self._run("settle", [self._keys.answer(sample) for sample in chunk], *args)

    async def abandon(self, samples: Sequence[str]) -> None:
        """Drop samples, by their keys, that nobody waits for, if no judge has them yet."""
        for start in range(0, len(samples), AT_ONCE):
            await self._run("abandon", (), *samples[start : start + AT_ONCE])

    async def last_event(self) -> str:
        """The id of the newest entry of the stream of verdicts; ``0`` if it is empty."""
        return await asyncio.to_thread(self._jobs.last_event)

    async def events(self, after: str, block: float) -> tuple[str, list[str]]:
        """Wait up to ``block`` seconds for verdicts.

        Returns the id of the last entry read, and the keys of the samples.
        """
        reply: Any = await self._redis.xread(
            {self._keys.events: after}, count=1000, block=max(1, int(block * 1000))
        )
        samples = []
        for entry, fields in entries(reply):
            after = entry
            if name := fields.get(b"sample"):
                samples.append(text(name))
        return after, samples

    async def tidy(self, *, now: Callable[[], float] = time.time) -> None:
        """Drop problems without use and old entries of the stream; let a left session expire."""
        before = now() - _PROBLEM_KEPT
        # All of them: trainers with inline tests may bring hundreds of problems a second.
        while await self._run("forget", (), before, _FORGOTTEN_AT_ONCE) == _FORGOTTEN_AT_ONCE:
            pass
        oldest = f"{int((now() - _STREAM_KEPT) * 1000)}-0"
        lifetime = 2 * max(self._remember, 3600)
        await self._commands.send(
            [
                ("XTRIM", self._keys.events, "MINID", "~", oldest),
                *(("EXPIRE", key, lifetime) for key in self._keys.all),
            ]
        )

    async def _run(self, command: str, own_keys: Sequence[str], *args: EncodableT) -> Any:  # noqa: ANN401
        all_keys = [*self._script_keys, *own_keys]
        return await self._commands.run(_SCRIPT, all_keys, [command, time.time(), *args])


def _state(stored: int | bytes) -> SampleState | RewardAnswer:
    if isinstance(stored, int):
        return SampleState(stored)
    return RewardAnswer.model_validate_json(stored)
