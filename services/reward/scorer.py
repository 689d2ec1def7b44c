"""Scoring of completions: problems found, limits kept, answers awaited, results made."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from services.reward.errors import RETRY_AFTER, RefusedError, too_many
from services.reward.metrics import RewardMetrics
from services.reward.models import (
    Purpose,
    ScoreItem,
    ScoreOptions,
    ScoreResult,
    ScoreRule,
    score_of,
)
from services.reward.pending import Answered, Listener, PendingAnswers
from services.reward.problems import KnownProblem, ProblemStore
from services.reward.reward_log import RewardLog
from services.reward.settings import RewardSettings
from shared.analysis import hacking
from shared.ledger.rewards import RewardAnswer, RewardSample
from shared.statuses import VerdictDetail

TEST_ERROR = VerdictDetail.TEST_ERROR.value
DEADLINE_PASSED = "deadline_passed"
"""Reason of a result whose completion was not judged in time."""
# Completions that are hashed before the event loop turns.
_HASHED_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class IndexedResult:
    """A result, and the index of its item in the request."""

    index: int
    result: ScoreResult


# What a request waits for, by the indices of its items, and the answers that have come.
_Asked = dict[int, tuple[RewardSample, Listener]]
_Answers = asyncio.Queue[tuple[int, Answered]]


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

    def deadline_of(self, options: ScoreOptions) -> float:
        """Seconds that a request may wait, which the service's settings limit."""
        return min(options.deadline, self._settings.max_deadline)

    async def score(self, items: Sequence[ScoreItem], options: ScoreOptions) -> list[ScoreResult]:
        """Score completions; results are in the order of the items.

        What is not judged by the deadline, or cannot be judged, is a result that says so. When the
        caller is cancelled, completions that nobody else waits for leave the queue.

        Raises:
            RefusedError: Nothing was judged: an item is wrong, or too many completions wait.
        """
        found: dict[int, ScoreResult] = {}
        async with self.stream(items, options) as stream:
            async for group in stream:
                found |= {one.index: one.result for one in group}
        return [found[index] for index in range(len(items))]

    @asynccontextmanager
    async def stream(
        self, items: Sequence[ScoreItem], options: ScoreOptions
    ) -> AsyncIterator[AsyncIterator[list[IndexedResult]]]:
        """As :meth:`score`, with results as they are known: an iterator of groups of them.

        The request is checked before the block is entered.

        Raises:
            RefusedError: As :meth:`score`.
        """
        deadline = time.monotonic() + self.deadline_of(options)
        self._check_sizes(items)
        with self._admission(len(items)):
            problems = await self._problems.resolve(
                items, options.purpose, allow_eval=self._settings.allow_eval
            )
            asked: _Asked = {}
            try:
                yield self._results(items, problems, options, deadline, asked)
            finally:
                for sample, listener in asked.values():
                    self._pending.release(sample, listener)

    async def _results(
        self,
        items: Sequence[ScoreItem],
        problems: Sequence[KnownProblem],
        options: ScoreOptions,
        deadline: float,
        asked: _Asked,
    ) -> AsyncIterator[list[IndexedResult]]:
        """Ask for all answers, and yield results as answers come; ``asked`` has the others."""
        answers: _Answers = asyncio.Queue()
        for index, (item, problem) in enumerate(zip(items, problems, strict=True)):
            if index % _HASHED_AT_ONCE == _HASHED_AT_ONCE - 1:
                await asyncio.sleep(0)
            sample = RewardSample.of(problem.name, item.completion)
            asked[index] = sample, partial(_put, answers, index)
            self._pending.ask(sample, problem, asked[index][1])
        while asked:
            answered = await _next_answers(answers, deadline)
            for index in answered:
                del asked[index]
            group = []
            for index, answer in (answered or dict.fromkeys(sorted(asked))).items():
                item, problem = items[index], problems[index]
                train = options.purpose is Purpose.TRAIN
                weight = self._problems.weight(problem) if train else 1.0
                result = make_result(item, problem, options.score, answer, weight)
                self._metrics.count_result(problem.reference.dataset, result)
                if result.judged:
                    self._measure(item, problem, result, options)
                group.append(IndexedResult(index, result))
            yield group
            if not answered:  # the deadline has passed
                return

    def _measure(
        self, item: ScoreItem, problem: KnownProblem, result: ScoreResult, options: ScoreOptions
    ) -> None:
        """Find signs of reward hacking, and count and log them."""
        answer = hacking.Answered(
            item.completion,
            accepted=bool(result.accepted),
            detail=result.detail,
            first_failed=result.first_failed,
            denied=result.denied,
        )
        # A validation repeats its prompts at temperature 0, so equal answers are no sign.
        train = options.purpose is Purpose.TRAIN
        prompt = (options.step, problem.reference.text, item.group) if train else None
        signs = self._meter.signs(answer, problem.traits, prompt)
        self._metrics.count_signs(signs, len(item.completion))
        self._reward_log.record(item, problem.reference, result, options.step, signs)

    def _check_sizes(self, items: Sequence[ScoreItem]) -> None:
        most = self._settings.max_completion
        for index, item in enumerate(items):
            text = item.completion
            # A character has up to four bytes.
            if len(text) > most or (len(text) * 4 > most and len(text.encode()) > most):
                raise RefusedError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"the completion has more than {most} bytes (PLUMBLINE_REWARD_MAX_COMPLETION)",
                    index=index,
                )

    @contextmanager
    def _admission(self, count: int) -> Iterator[None]:
        most = self._settings.max_pending
        if count > most:
            raise RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"{count} items, but the service holds {most} at a time "
                "(PLUMBLINE_REWARD_MAX_PENDING); send smaller batches",
            )
        if self._held + count > most:
            raise too_many(f"{self._held} of {most} completions are in flight; try again later")
        self._hold(count)
        try:
            yield
        finally:
            self._hold(-count)

    def _hold(self, count: int) -> None:
        self._held += count
        self._metrics.set_pending(self._held)


def _put(answers: _Answers, index: int, answered: Answered) -> None:
    answers.put_nowait((index, answered))


async def _next_answers(answers: _Answers, deadline: float) -> dict[int, Answered]:
    """Wait for further answers, by the indices of their items; none if the deadline has passed."""
    found = {}
    with suppress(TimeoutError):  # some may have come all the same
        async with asyncio.timeout(deadline - time.monotonic()):
            index, answered = await answers.get()
            found[index] = answered
    while not answers.empty():
        index, answered = answers.get_nowait()
        found[index] = answered
    return found


def why_not_judged(result: ScoreResult, deadline: float) -> str:
    """The reason of an unjudged result for its client, who waited up to ``deadline`` seconds."""
    if result.reason == DEADLINE_PASSED:
        return f"not judged within the deadline of {deadline:g} s"
    if result.reason == TEST_ERROR:
        return "not judged: test_error (its tests cannot run, whatever the completion is)"
    return f"not judged: {result.reason}"


def make_result(
    item: ScoreItem,
    problem: KnownProblem,
    rule: ScoreRule,
    answered: Answered | None,
    weight: float = 1.0,
) -> ScoreResult:
    """The result of one completion; ``answered`` is None if the deadline passed first."""
    if answered is None or not answered.answer.judged:
        reason = answered and answered.answer.detail
        return ScoreResult(
            id=item.id,
            reference=problem.nameable,
            reason=(reason or "not judged") if answered else DEADLINE_PASSED,
            retry_after=None if reason == TEST_ERROR else RETRY_AFTER,
        )
    answer: RewardAnswer = answered.answer
    waited = 0.0 if answered.cached else max(0.0, answered.waited - answer.judge_seconds)
    return ScoreResult(
        **answer.model_dump(),
        id=item.id,
        score=weight * score_of(rule, answer),
        weight=None if weight == 1 else weight,
        queue_seconds=round(waited, 6),
        judged=True,
        cached=answered.cached,
        reference=problem.nameable,
    )
