"""Completions in flight: submitted in batches, followed through the stream of verdicts.

Requests ask for answers and are called back. Everything towards Redis happens in the tasks here, so
a request that ends leaves nothing half done, and an outage only delays what waits. What the stream
does not tell (its entries are trimmed, Redis may lose its last writes) is found by looking.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from services.reward.problems import KnownProblem, ProblemStore
from shared.ledger.rewards import (
    AT_ONCE,
    RewardAnswer,
    RewardLedger,
    RewardSample,
    SampleState,
    SessionClosedError,
)
from shared.service.logs import get_logger

log = get_logger(__name__)

# Seconds of one wait for verdicts, between two looks at samples that wait, and until the next
# attempt while Redis is unavailable.
_BLOCK, _LOOK_EVERY, _PAUSE = 2.0, 3.0, 0.5
_LOOKED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, with how long its completion waited here (seconds)."""

    answer: RewardAnswer
    cached: bool
    waited: float


Listener = Callable[[Answered], None]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A sample that at least one request waits for."""

    sample: RewardSample
    problem: KnownProblem
    since: float
    listeners: list[Listener] = field(default_factory=list)
    submitted: bool = False


class PendingAnswers:
    """The samples of a session, whose config is JSON, that requests of this process wait for."""

    def __init__(self, ledger: RewardLedger, problems: ProblemStore, config: str) -> None:
        self._ledger = ledger
        self._problems = problems
        self._config = config
        self._waiting: dict[str, _Waiting] = {}
        # In the order of their arrival; those that are not in _waiting anymore are skipped.
        self._unsubmitted: dict[str, _Waiting] = {}
        self._abandoned: set[str] = set()
        self._last_event: str | None = None
        self._work = asyncio.Event()

    @property
    def count(self) -> int:
        """Number of different samples that requests wait for."""
        return len(self._waiting)

    async def run(self, upkeep: Awaitable[None]) -> None:
        """Follow the session until cancelled, beside its upkeep."""
        works = ((self._submit, 0.0), (self._follow, 0.0), (self._look, _LOOK_EVERY))
        await asyncio.gather(upkeep, *(_repeat(work, every) for work, every in works))

    def ask(self, sample: RewardSample, problem: KnownProblem, listener: Listener) -> None:
        """Call ``listener`` once, later, with the answer on a sample."""
        waiting = self._waiting.get(sample.key)
        if waiting is None:
            waiting = _Waiting(sample, problem, time.monotonic())
            self._waiting[sample.key] = self._unsubmitted[sample.key] = waiting
            self._abandoned.discard(sample.key)
            self._work.set()
        waiting.listeners.append(listener)

    def release(self, sample: RewardSample, listener: Listener) -> None:
        """Wait no longer; a sample that nobody waits for leaves the queue, if it still can."""
        waiting = self._waiting.get(sample.key)
        if waiting is None or listener not in waiting.listeners:
            return
        waiting.listeners.remove(listener)
        if not waiting.listeners:
            del self._waiting[sample.key]
            self._unsubmitted.pop(sample.key, None)
            if waiting.submitted:
                self._abandoned.add(sample.key)
                self._work.set()

    # Submitting

    async def _submit(self) -> None:
        await self._work.wait()
        await asyncio.sleep(0)  # the rest of the request that set it
        try:
            await self._submit_next()
        finally:
            if not self._abandoned and not self._unsubmitted:
                self._work.clear()

    async def _submit_next(self) -> None:
        if self._abandoned:
            abandoned = list(self._abandoned)
            await self._ledger.abandon(abandoned)
            self._abandoned.difference_update(abandoned)
        batch = list(itertools.islice(self._unsubmitted.values(), AT_ONCE))
        for waiting in batch:
            waiting.submitted = True  # from here on it may be in Redis
        states = await self._states(batch)
        answers = zip(batch, states, strict=True)
        if missing := [w for w, state in answers if state is SampleState.NO_PROBLEM]:
            records = {w.sample.problem: self._problems.record(w.problem) for w in missing}
            await self._ledger.bring(records)
            states = await self._states(batch)  # idempotent
        judged = []
        for waiting, state in zip(batch, states, strict=True):
            key = waiting.sample.key
            # Deleted by an operator in between: the next look submits it again.
            if self._unsubmitted.get(key) is waiting:
                del self._unsubmitted[key]
            if isinstance(state, RewardAnswer):
                self._deliver(key, state, cached=True)
            elif state is SampleState.JUDGED:
                judged.append(key)
        await self._collect(judged)

    async def _states(self, batch: list[_Waiting]) -> list[SampleState | RewardAnswer]:
        samples = [waiting.sample for waiting in batch]
        try:
            return await self._ledger.submit(samples)
        except SessionClosedError:
            await self._ledger.open(self._config)
            return await self._ledger.submit(samples)

    # Following

    async def _follow(self) -> None:
        if self._last_event is None:
            self._last_event = await self._ledger.last_event()
        self._last_event, samples = await self._ledger.events(self._last_event, _BLOCK)
        await self._collect(samples)

    async def _collect(self, samples: Iterable[str]) -> None:
        """Deliver the verdicts on those samples that are waited for, and settle them."""
        wanted = [sample for sample in dict.fromkeys(samples) if sample in self._waiting]
        answers = await self._ledger.verdicts(wanted)
        for sample, answer in answers.items():
            self._deliver(sample, answer, cached=False)
        await self._ledger.settle(answers)
        # Another replica was faster, and may have settled them.
        if missed := [sample for sample in wanted if sample not in answers]:
            await self._look_at(missed)

    async def _look(self) -> None:
        """Find what the stream did not tell about the samples that have waited for a while."""
        before = time.monotonic() - _LOOK_EVERY
        keys = [w.sample.key for w in self._waiting.values() if w.submitted and w.since < before]
        for start in range(0, len(keys), _LOOKED_AT_ONCE):
            await self._collect(await self._look_at(keys[start : start + _LOOKED_AT_ONCE]))

    async def _look_at(self, keys: list[str]) -> list[str]:
        """Deliver what is remembered, and submit again what is gone; returns what is judged."""
        judged = []
        for key, state in zip(keys, await self._ledger.look(keys), strict=True):
            if isinstance(state, RewardAnswer):
                self._deliver(key, state, cached=False)
            elif state is SampleState.JUDGED:
                judged.append(key)
            elif state is SampleState.GONE and (waiting := self._waiting.get(key)):
                self._unsubmitted[key] = waiting
                self._work.set()
        return judged

    def _deliver(self, sample: str, answer: RewardAnswer, *, cached: bool) -> None:
        waiting = self._waiting.pop(sample, None)
        if waiting is None:
            return
        self._unsubmitted.pop(sample, None)
        answered = Answered(answer, cached, time.monotonic() - waiting.since)
        for listener in waiting.listeners:
            listener(answered)


async def _repeat(work: Callable[[], Awaitable[None]], every: float) -> None:
    """Do the work again and again, with a pause while Redis is unavailable."""
    while True:
        await asyncio.sleep(every)
        try:
            await work()
        except RedisError as error:
            log.error("Redis unavailable, retrying", reason=str(error))
            await asyncio.sleep(_PAUSE)
