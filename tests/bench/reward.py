"""`make bench-reward`: a burst of completions through the reward service.

A trainer's step is one burst: problems times n completions, all at once. Printed are, for the real
sandbox and for a stand-in that answers at once (which shows what queue, ledger and service cost by
themselves): completions per second, CPU time per completion and memory of each process.
"""

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from services.data.records import write_dataset
from shared.schemas import Problem, StdioTests
from tests.bench.answers import stdio_answers
from tests.bench.instant_sandbox import OUTPUT, instant_sandbox
from tests.bench.pipeline import Usage, service_of
from tests.e2e import plumb
from tests.e2e.reward import reward_service, stdio_problem

DATASET = "bench"


@dataclass
class Burst:
    """Completions of ``problems``, ``n`` each, with the index of their problem."""

    problems: list[Problem]
    completions: list[tuple[int, str]]

    def items(self) -> list[dict[str, str]]:
        return [
            {
                "dataset": DATASET,
                "problem_id": self.problems[place].problem_id,
                "completion": completion,
            }
            for place, completion in self.completions
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--completions", type=int, default=8192)
    parser.add_argument("--n", type=int, default=8, help="completions per problem")
    parser.add_argument("--cases", type=int, default=20, help="cases per problem")
    parser.add_argument("--judges", type=int, default=2, help="judge processes")
    parser.add_argument("--rows", nargs="*", choices=["instant", "real"])
    arguments = parser.parse_args()
    rows = arguments.rows or ["instant", "real"]
    print(f"{os.cpu_count()} cores, {arguments.completions} completions, n = {arguments.n}")
    if "instant" in rows:
        print(f"a sandbox that answers at once, {arguments.cases} cases")
        with instant_sandbox(cases=arguments.cases) as url:
            _measure(arguments, _same_answer(arguments), SANDBOX_URLS=url)
    if "real" in rows:
        print(f"the real sandbox, answers of {arguments.cases} cases")
        _measure(arguments, _recorded(arguments))


def _same_answer(arguments: argparse.Namespace) -> Burst:
    tests = StdioTests(inputs=["1 2\n"] * arguments.cases, outputs=[OUTPUT] * arguments.cases)
    answer = "```python\nprint(sum(map(int, input().split())))\n```"
    return _burst(arguments, [(tests, answer)])


def _recorded(arguments: argparse.Namespace) -> Burst:
    answers = stdio_answers(64, arguments.cases)
    return _burst(arguments, [(answer.problem.tests, answer.completion) for answer in answers])


def _burst(arguments: argparse.Namespace, samples: Sequence[tuple[StdioTests, str]]) -> Burst:
    """Repeat the samples' problems as often as needed; no two completions are equal."""
    problems, completions = [], []
    for place in range(max(1, arguments.completions // arguments.n)):
        tests, answer = samples[place % len(samples)]
        problems.append(stdio_problem(f"problem_{place}", tests, DATASET))
        for number in range(arguments.n):
            completions.append((place, f"Answer {number} of {place}.\n{answer}\n"))
    return Burst(problems, completions)


def _measure(arguments: argparse.Namespace, burst: Burst, **environment: str) -> None:
    """Send the burst to a service of its own; print what it cost."""
    settings = [f"judge.workers={arguments.judges}", "judge.canaries=false"]
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder, f"{DATASET}.parquet"))
        write_dataset(data, burst.problems)
        with reward_service(Path(data), *settings, allow_eval=True, **environment) as service:
            asyncio.run(_send(service.url, burst.items()[:2]))  # what only the first time costs
            with _watched(service.process) as usage:
                began = time.monotonic()
                statuses = asyncio.run(_send(service.url, burst.items()))
                seconds = time.monotonic() - began
            began = time.monotonic()
            assert asyncio.run(_send(service.url, burst.items())) == statuses
            again = time.monotonic() - began
    count = len(burst.completions)
    assert sum(statuses.values()) == count, statuses
    assert not statuses.get("api_error"), statuses
    print(f"  {count / seconds:.0f} completions/s ({seconds:.1f} s): {statuses}")
    print(f"  the same burst again, which is remembered: {count / again:.0f} completions/s")
    for name, used in sorted(usage.items(), key=lambda item: -item[1].cpu):
        cpu = 1000 * used.cpu / count
        print(f"  {name}: {cpu:.2f} ms of CPU per completion; {used.memory:.0f} MB at the end")


async def _send(url: str, items: Sequence[dict[str, str]]) -> dict[str, int]:
    """Score all items in one streamed request; return how often each status came."""
    statuses: dict[str, int] = {}
    timeout = aiohttp.ClientTimeout(None)
    headers = {"Accept": "application/x-ndjson"}
    async with (
        aiohttp.ClientSession(timeout=timeout, read_bufsize=1 << 20) as session,
        session.post(
            f"{url}/v1/score", json={"items": items, "deadline": 3600}, headers=headers
        ) as answer,
    ):
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {(await answer.text())[:500]}")
        async for line in answer.content:
            result = json.loads(line)
            if "index" in result:
                statuses[result["status"]] = statuses.get(result["status"], 0) + 1
    return statuses


@contextmanager
def _watched(process: subprocess.Popen[str]) -> Iterator[dict[str, Usage]]:
    """CPU time in the block, and memory at its end, of a command and its children by service."""
    usage: dict[str, Usage] = defaultdict(Usage)
    for sign in (-1, 1):
        for member in [psutil.Process(process.pid), *plumb.children(process.pid)]:
            with suppress(psutil.Error):
                name = service_of(member.cmdline())
                times, memory = member.cpu_times(), member.memory_info().rss / 1e6
                # Programs that ended are counted with the sandbox that waited for them.
                of_children = times.children_user + times.children_system
                cpu = times.user + times.system + (of_children if name == "sandbox" else 0.0)
                usage[name].cpu += sign * cpu
                usage[name].memory += max(0, sign) * memory
        if sign < 0:
            yield usage


if __name__ == "__main__":
    main()
