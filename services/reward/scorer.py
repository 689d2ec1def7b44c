"""Scoring of completions: problems found, limits kept, answers awaited, results made."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from services.reward.metrics import RewardMetrics
from services.reward.models import (
    MAX_COMPLETION,
    RETRY_AFTER,
    Purpose,
    RefusedError,
    ScoreItem,
    ScoreOptions,
    ScoreResult,
    score_of,
)
from services.reward.pending import Answered, Listener, PendingAnswers
from services.reward.problems import KnownProblem, ProblemStore
from services.reward.reward_log import RewardLog
from services.reward.settings import RewardSettings
from shared.analysis import hacking
from shared.ledger.rewards import RewardSample
from shared.statuses import VerdictDetail

TEST_ERROR = VerdictDetail.TEST_ERROR.value
DEADLINE_PASSED = "deadline_passed"
"""Reason of a result whose completion was not judged in time."""
# Completions that are hashed before the event loop turns.
_HASHED_AT_ONCE = 256


class Scorer:
    """Scores the completions of requests, which wait here until judges have answered."""

    def __init__(
        self,
        settings: RewardSettings,
        problems: ProblemStore,
        pending: PendingAnswers,
        metrics: RewardMetrics,
        reward_log: RewardLog,
    ) -> None:
        self._settings = settings
        self._problems = problems
        self._pending = pending
        self._metrics = metrics
        self._reward_log = reward_log
        self._meter = hacking.SignMeter()
        self._held = 0

    async def score(self, items: Sequence[ScoreItem], options: ScoreOptions) -> list[ScoreResult]:
        """Score completions; results are in the order of the items.

        A completion that is not judged by the deadline, or cannot be judged, has a result that says
        so. When the caller is cancelled, completions that nobody else waits for leave the queue.

        Raises:
            RefusedError: Nothing was judged: an item is wrong, or too many completions wait.
        """
        results: dict[int, ScoreResult] = {}
        async with self.stream(items, options) as stream:
            async for group in stream:
                results |= group
        return [results[index] for index in range(len(items))]

    @asynccontextmanager
    async def stream(
        self, items: Sequence[ScoreItem], options: ScoreOptions
    ) -> AsyncIterator[AsyncIterator[dict[int, ScoreResult]]]:
        """As :meth:`score`, but yield results as answers come, in groups by the items' indices.

        The request is checked before the block is entered.

        Raises:
            RefusedError: As :meth:`score`.
        """
        deadline = time.monotonic() + options.deadline
        self._admit(items)
        self._hold(len(items))
        waiting: dict[int, tuple[RewardSample, Listener]] = {}
        allow_eval = self._settings.allow_eval
        try:
            problems = await self._problems.resolve(items, options.purpose, allow_eval=allow_eval)
            yield self._results(items, problems, options, deadline, waiting)
        finally:
            for sample, listener in waiting.values():
                self._pending.release(sample, listener)
            self._hold(-len(items))

    async def _results(
        self,
        items: Sequence[ScoreItem],
        problems: Sequence[KnownProblem],
        options: ScoreOptions,
        deadline: float,
        waiting: dict[int, tuple[RewardSample, Listener]],
    ) -> AsyncIterator[dict[int, ScoreResult]]:
        """Ask for all answers, and yield results; ``waiting`` has the items without an answer."""
        answers: asyncio.Queue[tuple[int, Answered]] = asyncio.Queue()

        def listener(index: int) -> Listener:
            return lambda answered: answers.put_nowait((index, answered))

        for index, (item, problem) in enumerate(zip(items, problems, strict=True)):
            if index % _HASHED_AT_ONCE == _HASHED_AT_ONCE - 1:
                await asyncio.sleep(0)
            name = problem.reference
            sample = RewardSample.of(name.dataset, name.problem_id, name.digest, item.completion)
            waiting[index] = sample, listener(index)
            self._pending.ask(sample, problem, waiting[index][1])
        late = False
        while waiting and not late:
            answered: dict[int, Answered | None] = {}
            with suppress(TimeoutError):  # answers may have come all the same
                async with asyncio.timeout(deadline - time.monotonic()):
                    answered.update([await answers.get()])
            while not answers.empty():
                answered.update([answers.get_nowait()])
            for index in answered:
                del waiting[index]
            late = not answered
            yield {
                index: self._result(items[index], problems[index], options, answer)
                for index, answer in (answered or dict.fromkeys(sorted(waiting))).items()
            }

    def _result(
        self,
        item: ScoreItem,
        problem: KnownProblem,
        options: ScoreOptions,
        answered: Answered | None,
    ) -> ScoreResult:
        """Make the result of a completion, None at the deadline; count and log it, with signs."""
        dataset = problem.reference.dataset
        if answered is None or not answered.answer.judged:
            reason = (answered.answer.detail or "not judged") if answered else DEADLINE_PASSED
            result = ScoreResult(
                id=item.id,
                reference=problem.nameable,
                reason=reason,
                retry_after=None if reason == TEST_ERROR else RETRY_AFTER,
            )
            self._metrics.count_result(dataset, result)
            return result
        answer, train = answered.answer, options.purpose is Purpose.TRAIN
        weight = self._problems.weight(problem) if train else 1.0
        waited = 0.0 if answered.cached else max(0.0, answered.waited - answer.judge_seconds)
        result = ScoreResult(
            **answer.model_dump(exclude={"first_failed", "denied"}),
            id=item.id,
            score=weight * score_of(options.score, answer),
            weight=None if weight == 1 else weight,
            queue_seconds=round(waited, 6),
            judged=True,
            cached=answered.cached,
            reference=problem.nameable,
        )
        self._metrics.count_result(dataset, result)
        text = hacking.Answered(
            item.completion,
            accepted=answer.accepted,
            detail=answer.detail,
            first_failed=answer.first_failed,
            denied=answer.denied,
        )
        # A validation repeats its prompts at temperature 0, so equal answers are no sign.
        prompt = (options.step, problem.reference.text, item.group) if train else None
        signs = self._meter.signs(text, problem.traits, prompt)
        self._metrics.count_signs(signs, len(item.completion))
        self._reward_log.record(item, problem.reference, result, options.step, signs)
        return result

    def _admit(self, items: Sequence[ScoreItem]) -> None:
        limit = self._settings.max_pending
        if len(items) > limit:
            raise RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"{len(items)} items, but the service holds {limit} at a time "
                "(PLUMBLINE_REWARD_MAX_PENDING); send smaller batches",
            )
        for index, item in enumerate(items):
            text = item.completion
            # A character has up to four bytes.
            if len(text) * 4 > MAX_COMPLETION and len(text.encode()) > MAX_COMPLETION:
                message = f"the completion has more than {MAX_COMPLETION} bytes"
                raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, index=index)
        if self._held + len(items) > limit:
            text = f"{self._held} of {limit} completions are in flight; try again later"
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=RETRY_AFTER)

    def _hold(self, count: int) -> None:
        self._held += count
        self._metrics.pending.set(self._held)
