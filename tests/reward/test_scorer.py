"""Scoring beside the moments at which answers come: none is lost between two looks."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.reward.metrics import RewardMetrics
from services.reward.models import ScoreItem, ScoreOptions, ScoreResult
from services.reward.pending import Answered, Listener
from services.reward.problems import KnownProblem, ProblemStore
from services.reward.reward_log import RewardLog
from services.reward.scorer import Scorer
from services.reward.settings import RewardSettings
from shared.ledger.rewards import RewardAnswer, RewardSample
from shared.statuses import FinalStatus

ANSWER = Answered(RewardAnswer(status=FinalStatus.SUCCESS, accepted=True, pass_ratio=1), False, 0.1)
TESTS = {"inputs": [""], "outputs": [""]}
ITEMS = [ScoreItem(completion=text, ground_truth=TESTS) for text in "ab"]


class Answers:
    """Stands in for the pending answers: the test says when which one comes."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []

    def ask(self, _sample: RewardSample, _problem: KnownProblem, listener: Listener) -> None:
        self.listeners.append(listener)

    def release(self, _sample: RewardSample, listener: Listener) -> None:
        self.listeners.remove(listener)

    def give(self) -> None:
        self.listeners.pop(0)(ANSWER)


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
async def scorer(answers: Answers) -> AsyncIterator[Scorer]:
    problems = ProblemStore([])
    pending: Any = answers
    yield Scorer(
        RewardSettings(), problems, pending, RewardMetrics(), RewardLog(None, "reward/x", every=1)
    )
    problems.close()


async def test_answers_that_come_while_a_client_reads_slowly(
    scorer: Scorer, answers: Answers
) -> None:
    found: dict[int, ScoreResult] = {}
    async with scorer.stream(ITEMS, ScoreOptions(deadline=5)) as stream:
        asyncio.get_running_loop().call_later(0.05, answers.give)
        async for group in stream:
            found |= group
            if answers.listeners:  # the last one comes while this group is on its way
                answers.give()
    assert sorted(found) == [0, 1]
    assert all(result.judged for result in found.values())
