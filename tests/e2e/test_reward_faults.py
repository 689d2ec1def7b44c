"""Rewards are never lost, doubled or made up while the stack behind them fails."""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plumbline_reward
import pytest
from aiohttp import web

from services.data.records import write_dataset
from shared.reference import reference_of
from shared.schemas import Problem, StdioTests
from tests.e2e.plumb import SHORT_LEASE
from tests.e2e.reward import RewardService, reward_service, stdio_problem
from tests.judge.faulty_sandbox import Body, Call, Send, faulty_in_thread

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

IN_FLIGHT = 200
PROBLEMS = 40
# The pass ratio of each kind of answer to a problem with two cases, sums of two numbers.
ANSWERS = {
    "print(sum(map(int, input().split())))": 1.0,
    "print(3)": 0.5,
    "print(input())": 0.0,
    "raise ValueError": 0.0,
    "print(": 0.0,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion of its own, and the score that it earns."""

    problem: Problem
    completion: str
    score: float


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    tests = [
        StdioTests(inputs=["1 2\n", f"{number} {number + 7}\n"], outputs=["3\n", f"{sum_}\n"])
        for number, sum_ in ((number, 2 * number + 7) for number in range(PROBLEMS))
    ]
    return [stdio_problem(f"sum_{number}", own) for number, own in enumerate(tests)]


@pytest.fixture(scope="module")
def data(problems: list[Problem], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "train.parquet"
    write_dataset(str(file), problems)
    return file


@pytest.fixture(scope="module")
def answers(problems: list[Problem]) -> list[Answer]:
    kinds = list(ANSWERS.items())
    return [
        Answer(problems[number % PROBLEMS], f"Answer {number}:\n```python\n{code}\n```\n", score)
        for number in range(IN_FLIGHT)
        for code, score in [kinds[number % len(kinds)]]
    ]


def test_every_part_is_killed(data: Path, answers: list[Answer]) -> None:
    victims = ["services.reward", "services.judge", "services.sandbox", "redis"]
    settings: dict[str, Any] = {"allow_eval": True, **SHORT_LEASE}
    with reward_service(data, "judge.workers=2", **settings) as service:
        scores = _rewards(service, answers, lambda done: _kill(service, victims, done))
    assert scores == [answer.score for answer in answers]


@pytest.mark.nightly
def test_a_storm_of_503(data: Path, answers: list[Answer], shared_sandbox: str) -> None:
    """A sandbox refuses three of four calls for a second, then none for a second, and so on."""
    chance = random.Random(3)

    async def refuse(call: Call, send: Send) -> Body:
        if int(time.monotonic()) % 2 and chance.random() < 0.75:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "1"})
        return await send(call.body)

    with faulty_in_thread(shared_sandbox, refuse) as url:
        settings = ["judge.workers=2", "judge.retry_budget=30"]
        with reward_service(data, *settings, allow_eval=True, SANDBOX_URLS=url) as service:
            scores = _rewards(service, answers, lambda _done: None)
    assert scores == [answer.score for answer in answers]


def _rewards(
    service: RewardService, answers: list[Answer], during: Callable[[list[int]], None]
) -> list[float]:
    """The scores of all answers, asked for at once; ``during`` sees which are there so far."""
    done: list[int] = []

    async def ask(number: int, answer: Answer) -> float:
        reward = await plumbline_reward.compute_score(
            answer.problem.data_source,
            answer.completion,
            reference_of(answer.problem).text,
            {"index": number},
            url=service.url,
        )
        done.append(number)
        return reward["score"]

    async def ask_all() -> list[float]:
        return await asyncio.gather(*(ask(*pair) for pair in enumerate(answers)))

    disturbing = threading.Thread(target=during, args=[done])
    disturbing.start()
    scores = asyncio.run(ask_all())
    disturbing.join()
    assert sorted(done) == list(range(len(answers)))
    return scores


def _kill(service: RewardService, victims: list[str], done: list[int]) -> None:
    """Kill one part after the other, each while most answers are in flight."""
    for number, name in enumerate(victims):
        while len(done) < (number + 1) * IN_FLIGHT // 10:
            time.sleep(0.01)
        service.part(name).kill()
