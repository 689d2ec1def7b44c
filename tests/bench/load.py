"""Verdicts at concurrency 1 and 32 beside processes that use up the machine, by isolation mode.

`python -m tests.bench.load --isolation bwrap unshare` judges recorded answers to CodeContests,
programs that need three quarters of their limit, and an endless one, with the real permits in a
real Redis, and prints each answer whose codes differ. Exit code 1 if there is one.
"""

import argparse
import asyncio
import gzip
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from services.data.importer import import_dataset
from services.judge.permits import PoolSettings, SandboxPool
from services.judge.sandbox import SandboxClient
from services.sandbox.settings import IsolationChoice
from shared.config import Config, load_config
from shared.datasets import read_datasets
from shared.errors import ServiceError
from shared.ledger import connect_async
from shared.schemas import Problem, StdioTests
from tests.bench.answers import Answer, real_data
from tests.bench.judges import by_method
from tests.conftest import RedisServer
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
    settings = PoolSettings(max_concurrency=at_once, initial=at_once, minimum=at_once)
    pool = SandboxPool(connection, [sandbox], "load", settings=settings)
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


def main() -> None:
    arguments = _arguments()
    data = real_data()
    if data is None:
        sys.exit("CodeContests' answers are missing; PLUMBLINE_REAL_DATA names their folder")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        answers = recorded_answers(data, folder, arguments.cases, arguments.every)
        answers += made_answers(answers[0].problem)
        redis = RedisServer(folder / "redis")
        try:
            flips = [
                _measure(redis.url, folder / mode, answers, arguments.burners, mode)
                for mode in arguments.isolation
            ]
        finally:
            redis.stop()
    sys.exit(any(flips))


def _arguments() -> argparse.Namespace:
    modes = [mode.value for mode in IsolationChoice if mode is not IsolationChoice.AUTO]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isolation", nargs="*", choices=modes, default=modes)
    parser.add_argument("--burners", type=int, default=CORES)
    parser.add_argument("--cases", type=int, default=6, help="cases per answer")
    parser.add_argument("--every", type=int, default=4, help="judge every n-th recorded answer")
    return parser.parse_args()


def _measure(redis: str, folder: Path, answers: Sequence[Answer], burning: int, mode: str) -> bool:
    folder.mkdir()
    began = time.monotonic()
    try:
        alone, together = judged_beside_burners(
            redis, folder, answers, burning, PLUMBLINE_SANDBOX_ISOLATION=mode
        )
    except ServiceError as error:
        print(f"{mode}: not measured: {error}")
        return False
    differing = {i: (alone[i], together[i]) for i in alone if alone[i] != together[i]}
    seconds = time.monotonic() - began
    cases = sum(len(codes) for codes in alone.values())
    print(
        f"{mode}: {len(answers)} answers, {cases} cases, beside {burning} burners: "
        f"{len(differing)} answers differ at concurrency 1 and 32 ({seconds:.0f} s)"
    )
    for place, (one, many) in differing.items():
        print(f"  {answers[place].problem.problem_id}: {one} {many}")
    return bool(differing)


if __name__ == "__main__":
    main()
