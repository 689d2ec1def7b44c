"""Verdicts at concurrency 1 and 32 beside processes that use up the machine."""

import asyncio
import gzip
import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from services.data.importer import import_dataset
from services.judge.permits import SandboxPool
from services.judge.sandbox import SandboxClient
from shared.config import Config, load_config
from shared.datasets import read_datasets
from shared.ledger import connect_async
from shared.ledger.pipelined import PipelinedRedis
from shared.schemas import Problem, StdioTests
from tests.bench.answers import Answer
from tests.bench.judges import by_method
from tests.sandboxes import own_sandbox

CORES = len(os.sched_getaffinity(0))
# Answers that need three quarters of their limit: on a crowded machine they take many times that
# by the clock.
SPINNER = """```python
import time
while time.process_time() < 1.5:
    pass
print(input())
```"""
SPINNERS = 10
_ENDLESS = "```python\nwhile True:\n    pass\n```"
_SETTINGS = ["sandbox.timeout=2", "judge.max_timeouts=1"]

Codes = dict[int, list[int]]


def recorded_answers(data: Path, folder: Path, cases: int, every: int) -> list[Answer]:
    """Every so many-th recorded answer with its longest cases, which take the most time."""
    source = str(data / "code_contests_test_40.jsonl.gz")
    path = import_dataset("code_contests", source, folder, include_generated=True).path
    problems = {problem.problem_id: problem for problem in read_datasets([str(path)])}
    with gzip.open(data / "code_contests_completions.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file][::every]
    return [Answer(_shortened(problems[row["problem"]], cases), row["response"]) for row in rows]


def made_answers(like: Problem) -> list[Answer]:
    """Answers close to their limit, and an endless one at the end."""
    echo = json.dumps({"inputs": ["1"], "outputs": ["1"]})
    problem = Problem(**{**like.model_dump(), "ground_truth": echo})
    return [*(Answer(problem, SPINNER) for _ in range(SPINNERS)), Answer(problem, _ENDLESS)]


async def judged(
    sandbox: str, redis: str, answers: Sequence[Answer], config: Config, at_once: int
) -> Codes:
    """The codes of each answer's cases, by the answer's place; so many answers at once."""
    connection = await connect_async(redis)
    commands = PipelinedRedis(connection)
    pool = SandboxPool(commands, [sandbox], "load", max_concurrency=at_once)
    slots = asyncio.Semaphore(at_once)
    async with SandboxClient(pool, max_attempts=3, retry_budget=60) as client:
        judge = by_method(config, client)

        async def one(answer: Answer) -> list[int]:
            async with slots:
                return list((await judge(answer)).codes)

        codes = await asyncio.gather(*(one(answer) for answer in answers))
    await pool.close()
    await connection.aclose()
    return dict(enumerate(codes))


def judged_beside_burners(
    redis: str, folder: Path, answers: Sequence[Answer], burning: int, **settings: str
) -> tuple[Codes, Codes]:
    """Codes one by one and 32 at once, in a sandbox with 32 slots."""
    config = load_config(None, _SETTINGS)
    many = {"PLUMBLINE_SANDBOX_CONCURRENCY": "32", **settings}
    with own_sandbox(folder, **many) as sandbox, burners(burning):
        alone = asyncio.run(judged(sandbox, redis, answers, config, 1))
        return alone, asyncio.run(judged(sandbox, redis, answers, config, 32))


@contextmanager
def burners(count: int, *, alone: bool = False) -> Iterator[None]:
    """Processes that want a core each; ``alone``, each has a session's share of the processor."""
    started = [
        multiprocessing.Process(target=_spin, kwargs={"alone": alone}, daemon=True)
        for _ in range(count)
    ]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.join()


def _spin(*, alone: bool) -> None:
    if alone:
        os.setsid()
    while True:
        pass


def _shortened(problem: Problem, count: int) -> Problem:
    tests = problem.tests
    assert isinstance(tests, StdioTests)
    cases = sorted(zip(tests.inputs, tests.outputs, strict=True), key=lambda c: -len(c[0]))
    inputs, outputs = zip(*cases[:count], strict=True)
    kept = {"inputs": inputs, "outputs": outputs}
    # Not model_copy, which keeps what the problem has parsed already.
    return Problem(**{**problem.model_dump(), "ground_truth": json.dumps(kept)})
