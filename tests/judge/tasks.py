"""Answers to judge, and their verdicts."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from services.judge.calls import Task
from services.judge.judging import judge
from services.judge.sandbox import Attempts, SandboxClient
from services.judge.verdict import Judgement, to_verdict
from shared.config import load_config
from shared.schemas import Problem, Verdict
from tests.shared.ledgers import generation, problem

K = TypeVar("K")
V = TypeVar("V")


def with_tests(**tests: object) -> Problem:
    """A problem with these tests: the fields of its ground truth."""
    return problem(ground_truth=json.dumps(tests))


HUMANEVAL = with_tests(
    test="def check(candidate):\n    assert candidate(1) == 2\n",
    entry_point="inc",
    prompt="def inc(n):\n    '''One more.'''\n",
)
"""A problem with the tests of HumanEval: ``inc(1)`` is 2."""
MBPP = with_tests(test_list=["assert inc(1) == 2", "assert inc(2) == 3"])
"""A problem with the tests of MBPP: two cases."""


def fenced(code: str, language: str = "python") -> str:
    return f"Here it is:\n```{language}\n{code}\n```\nDone."


def stdio(*cases: tuple[str, str], **fields: object) -> Problem:
    """A problem with inputs and outputs; the fields are those of ``StdioTests``."""
    inputs, outputs = zip(*cases, strict=True)
    return with_tests(inputs=inputs, outputs=outputs, **fields)


def make_task(sandbox: SandboxClient, problem: Problem, completion: str, *overrides: str) -> Task:
    return Task.of(load_config(None, overrides), problem, completion, sandbox)


async def judge_code(
    sandbox: object, problem: Problem, code: str, *overrides: str, language: str = "python"
) -> Verdict:
    """The verdict on an answer with this code; ``sandbox`` may be a stand-in for the client."""
    completion = fenced(code, language)
    return await verdict_of(make_task(sandbox, problem, completion, *overrides))  # type: ignore[arg-type]


async def verdict_of(task: Task) -> Verdict:
    return as_verdict(await judge(task), task.completion, task.attempts)


def as_verdict(judgement: Judgement, completion: str, attempts: Attempts) -> Verdict:
    made = generation(completion=completion)
    return to_verdict(made, judgement, attempts.requests, attempts.failures, "w")


async def together(
    keys: Iterable[K], judge: Callable[[K], Awaitable[V]], at_a_time: int = 6
) -> dict[K, V]:
    """Judge several answers at a time; the result has the order of the keys."""
    slots = asyncio.Semaphore(at_a_time)
    keys = list(keys)

    async def judge_next(key: K) -> V:
        async with slots:
            return await judge(key)

    return dict(zip(keys, await asyncio.gather(*map(judge_next, keys)), strict=True))
