"""Judges one answer with one of our methods or with verl, using only a server."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

from services.judge.calls import Task
from services.judge.judging import judge_answer
from services.judge.sandbox import SandboxClient
from shared.config import Config
from shared.schemas import StdioTests
from tests.bench.answers import Answer
from tests.judge.pools import OpenPool
from tests.parity import verl

JudgeAnswer = Callable[[Answer], Awaitable[Sequence[int]]]
"""It returns a code per case."""


def client(url: str) -> SandboxClient:
    return SandboxClient(OpenPool([url]), max_attempts=2, retry_budget=30)


def by_method(config: Config, sandbox: SandboxClient) -> JudgeAnswer:
    """``judge.method`` of the config."""

    async def judge(answer: Answer) -> Sequence[int]:
        task = Task.of(config, answer.problem, answer.completion, sandbox)
        return [int(case.code) for case in (await judge_answer(task)).cases]

    return judge


def by_verl(config: Config, url: str, slots: int) -> JudgeAnswer:
    """verl's own ``compute_score``, with at most so many calls at once over all answers.

    Raises:
        ScorerMissingError: verl's scorer cannot be had.
    """
    scorer = verl.load()[verl.NAME]
    semaphore = threading.Semaphore(slots)
    codes = {"success": 1, "wrong_answer": 0, "runtime_error": -2, "timeout": -3}

    async def judge(answer: Answer) -> Sequence[int]:
        assert isinstance(answer.problem.tests, StdioTests)
        _, cases = await asyncio.to_thread(
            scorer.compute_score,
            f"{url}/run_code",
            semaphore,
            config.sandbox.memory_limit_mb,
            answer.completion,
            answer.problem.tests.model_dump(exclude_none=True),
            timeout=config.sandbox.timeout,
        )
        return [codes.get(case["status"], -1) for case in cases]

    return judge
