"""`make bench-borderline`: verdicts of answers near their time limit, idle and busy.

Answers whose work is a known multiple of the limit, as programs and as function tests, are judged
several times alone and beside burners: processes that use all processors, in sessions of their own.
Printed is how often each answer was accepted. The work is calibrated on the idle machine: the
shortest of several runs counts, because everything else on a machine only makes a program slower.
"""

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.judge.judging import judge_answer
from services.judge.methods.base import Task
from services.judge.requests import Attempts
from services.judge.sandbox import SandboxClient
from services.judge.verdict import to_verdict
from shared.config import load_config
from shared.schemas import Problem, Verdict
from shared.statuses import FinalStatus
from tests.judge.pools import OpenPool
from tests.judge.tasks import fenced, stdio
from tests.sandboxes import sandbox
from tests.shared.ledgers import generation, problem

FACTORS = (0.8, 0.85, 0.9, 0.94, 0.97, 1.03, 1.06, 1.1, 1.17, 1.25)
WORK = """
def work(n):
    state = 0
    for i in range(n):
        state = (state * 31 + i) & 0xFFFF
    return n
"""
SAMPLE, SAMPLES = 5_000_000, 10
BURNER = "while True: pass"


async def calibrate(client: SandboxClient) -> tuple[float, float]:
    """Return the CPU seconds of an answer without work, and of one round of work."""
    shortest = []
    for rounds in (0, SAMPLE):
        given, completion = program(rounds)
        runs = [await judge(client, given, completion, 60) for _ in range(SAMPLES)]
        shortest.append(min(run.cpu_time or 0.0 for run in runs))
    return shortest[0], (shortest[1] - shortest[0]) / SAMPLE


@contextmanager
def burners(count: int) -> Iterator[None]:
    command = [sys.executable, "-c", BURNER]
    processes = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def program(rounds: int) -> tuple[Problem, str]:
    code = fenced(f"{WORK}print(work(int(input())))")
    return stdio((str(rounds), str(rounds))), code


def function(rounds: int) -> tuple[Problem, str]:
    tests = {"test_list": [f"assert work({rounds}) == {rounds}"], "test_setup_code": ""}
    return problem(ground_truth=json.dumps(tests)), fenced(WORK)


async def judge(client: SandboxClient, given: Problem, completion: str, limit: float) -> Verdict:
    config = load_config(None, [f"sandbox.timeout={limit}"])
    task = Task(given, completion, config.judge, config.sandbox, client, Attempts())
    judgement = await judge_answer(task)
    return to_verdict(generation(completion=completion), judgement, 1, [], "bench")


async def measure(url: str, limit: float, times: int, burning: int) -> int:
    wrong = 0
    async with SandboxClient(OpenPool([url]), max_attempts=2, retry_budget=30) as client:
        start, one = await calibrate(client)
        print(f"limit {limit} s, {one * 1e9:.1f} ns per round of work, {burning} burners")
        print("kind      work   idle            busy            again  CPU seconds")
        for factor, kind in itertools.product(FACTORS, (program, function)):
            given, completion = kind(int((limit * factor - start) / one))
            idle = [await judge(client, given, completion, limit) for _ in range(times)]
            with burners(burning):
                busy = [await judge(client, given, completion, limit) for _ in range(times)]
            expected = FinalStatus.SUCCESS if factor < 1 else FinalStatus.TIMEOUT
            faults = sum(verdict.final_status is not expected for verdict in idle + busy)
            wrong += faults
            cpu = sorted(verdict.cpu_time or 0.0 for verdict in idle + busy)
            again = sum(verdict.confirmed for verdict in idle + busy)
            print(
                f"{kind.__name__:9} {factor:4}  {_shown(idle):15} {_shown(busy):15} {again:5} "
                f" {cpu[0]:.3f}-{cpu[-1]:.3f}{'  !' * bool(faults)}",
                flush=True,
            )
    print(f"{wrong} of {2 * times * 2 * len(FACTORS)} verdicts are not as the work says")
    return wrong


def _shown(verdicts: list[Verdict]) -> str:
    late = sum(verdict.final_status is FinalStatus.TIMEOUT for verdict in verdicts)
    accepted = sum(verdict.accepted for verdict in verdicts)
    return f"{accepted} ok, {late} late"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=2.0, help="CPU seconds of a case")
    parser.add_argument("--times", type=int, default=3, help="judgements of each answer")
    parser.add_argument("--burners", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sandbox(Path(folder)) as url:
        measured = measure(url, arguments.limit, arguments.times, arguments.burners)
        sys.exit(1 if asyncio.run(measured) else 0)


if __name__ == "__main__":
    main()
