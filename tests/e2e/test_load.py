"""Verdicts do not depend on concurrency or load."""

import asyncio
import gzip
import json
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.data.importer import import_dataset
from services.judge.judging import judge_answer
from services.judge.methods.base import Task
from services.judge.permits import PoolSettings, SandboxPool
from services.judge.requests import Attempts
from services.judge.sandbox import SandboxClient
from shared.config import Config, load_config
from shared.datasets import read_datasets
from shared.ledger import connect_async
from shared.schemas import Problem, StdioTests
from tests.conftest import RedisServer
from tests.judge.tasks import stdio
from tests.real_data import ALL, share
from tests.sandboxes import own_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# PLUMBLINE_LOAD_CASES=1000 takes them all, which is a matter of a quarter of an hour.
_CASES = int(os.environ.get("PLUMBLINE_LOAD_CASES", "6"))
_CORES = len(os.sched_getaffinity(0))

# Answers that need three quarters of their limit: on a crowded machine they take many times that
# by the clock.
_SPINNER = """```python
import time
while time.process_time() < 1.5:
    pass
print(input())
```"""
_SPINNERS = 10
_ENDLESS = "```python\nwhile True:\n    pass\n```"

Verdicts = dict[int, list[int]]


def _spin(*, alone: bool) -> None:
    if alone:
        os.setsid()
    while True:
        pass


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


@contextmanager
def one_core() -> Iterator[None]:
    """For what is started meanwhile."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def shortened(problem: Problem) -> Problem:
    tests = problem.tests
    assert isinstance(tests, StdioTests)
    # The longest inputs first: they take the most time.
    cases = sorted(zip(tests.inputs, tests.outputs, strict=True), key=lambda c: -len(c[0]))
    inputs, outputs = zip(*cases[:_CASES], strict=True)
    kept = {"inputs": inputs, "outputs": outputs}
    # Not model_copy, which keeps what the problem has parsed already.
    return Problem(**{**problem.model_dump(), "ground_truth": json.dumps(kept)})


async def judged(
    sandbox: str, redis: str, answers: list[tuple[Problem, str]], config: Config, at_once: int
) -> Verdicts:
    connection = await connect_async(redis)
    settings = PoolSettings(max_concurrency=at_once, initial=at_once, minimum=at_once)
    pool = SandboxPool(connection, [sandbox], "load", settings=settings)
    slots = asyncio.Semaphore(at_once)

    async def one(client: SandboxClient, problem: Problem, completion: str) -> list[int]:
        async with slots:
            task = Task(problem, completion, config.judge, config.sandbox, client, Attempts())
            judgement = await judge_answer(task)
            return [int(case.code) for case in judgement.cases]

    async with SandboxClient(pool, max_attempts=3, retry_budget=60) as client:
        codes = await asyncio.gather(*(one(client, *answer) for answer in answers))
    await pool.close()
    await connection.aclose()
    return dict(enumerate(codes))


@pytest.mark.real_data
def test_verdicts_are_the_same_one_by_one_and_32_at_once_beside_burners(
    real_data: Path, redis_server: RedisServer, tmp_path: Path
) -> None:
    source = str(real_data / "code_contests_test_40.jsonl.gz")
    data = import_dataset("code_contests", source, tmp_path, include_generated=True).path
    problems = {problem.problem_id: problem for problem in read_datasets([str(data)])}
    with gzip.open(real_data / "code_contests_completions.jsonl.gz", "rt") as file:
        recorded = share([json.loads(line) for line in file], 4)
    answers = [(shortened(problems[r["problem"]]), r["response"]) for r in recorded]
    echo = {"inputs": ["1"], "outputs": ["1"]}
    spun = Problem(**{**answers[0][0].model_dump(), "ground_truth": json.dumps(echo)})
    answers += [(spun, _SPINNER)] * _SPINNERS + [(spun, _ENDLESS)]
    config = load_config(None, ["sandbox.timeout=2", "judge.max_timeouts=1"])
    many = {"PLUMBLINE_SANDBOX_CONCURRENCY": "32"}
    with own_sandbox(tmp_path, **many) as sandbox, burners(_CORES):
        alone, together = (
            asyncio.run(judged(sandbox, redis_server.url, answers, config, at_once))
            for at_once in (1, 32)
        )
    assert {i: (alone[i], together[i]) for i in alone if alone[i] != together[i]} == {}
    assert len(recorded) == (91 if ALL else 23)
    assert [alone[len(recorded) + number] for number in range(_SPINNERS)] == [[1]] * _SPINNERS
    assert {code for codes in alone.values() for code in codes} >= {1, 0, -2, -3}


def test_a_machine_that_others_use_up_makes_no_time_out(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    # Half a second of the processor's time, of which there is a sixth: three seconds, while the
    # wall-clock limit of a run by itself is two.
    config = load_config(None, ["sandbox.timeout=0.7"])
    answers = [(stdio(("1", "1")), _SPINNER.replace("1.5", "0.5"))]
    with one_core(), own_sandbox(tmp_path) as sandbox, burners(5, alone=True):
        found = asyncio.run(judged(sandbox, redis_server.url, answers, config, 1))
    assert found == {0: [1]}
