"""Passes over a set of answers by two sides in turn, and the lines that compare them."""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench.answers import Answer
from tests.bench.judges import JudgeAnswer
from tests.bench.servers import CpuSeconds


@dataclass(frozen=True, slots=True)
class Side:
    """One way of judging.

    Attributes:
        server_cpu: CPU seconds of its server so far.
        at_once: Completions in flight.
    """

    name: str
    judge: JudgeAnswer
    server_cpu: CpuSeconds
    at_once: int


@dataclass(frozen=True, slots=True)
class Pass:
    """All answers judged once. Times are seconds; ``client`` is the CPU time of this process."""

    wall: float
    client: float
    server: float
    codes: Sequence[Sequence[int]]

    @property
    def cpu(self) -> float:
        return self.client + self.server


Pair = tuple[Pass, Pass]
"""Ours and theirs."""


async def compare(ours: Side, theirs: Side, answers: Sequence[Answer], count: int) -> None:
    """Judge by both sides in turn, ``count`` times; print the costs and different verdicts."""
    for side in (ours, theirs):  # costs of the first use only
        await judge_all(side, answers[:2])
    pairs = [await _pair(ours, theirs, answers, turn) for turn in range(count)]
    _print_side(ours, [mine for mine, _ in pairs])
    _print_side(theirs, [other for _, other in pairs])
    print(f"  ratio of completions per second {_ratio(pairs, lambda measured: measured.wall)}")
    print(f"  ratio of completions per core-second {_ratio(pairs, lambda measured: measured.cpu)}")
    _print_differences(answers, pairs[0])


async def judge_all(side: Side, answers: Sequence[Answer]) -> Pass:
    slots = asyncio.Semaphore(side.at_once)

    async def judge(answer: Answer) -> Sequence[int]:
        async with slots:
            return await side.judge(answer)

    client, server, began = time.process_time(), side.server_cpu(), time.monotonic()
    codes = await asyncio.gather(*(judge(answer) for answer in answers))
    wall = time.monotonic() - began
    return Pass(wall, time.process_time() - client, side.server_cpu() - server, codes)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median, minimum and maximum."""
    median, least, most = statistics.median(values), min(values), max(values)
    return f"{median:.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"


async def _pair(ours: Side, theirs: Side, answers: Sequence[Answer], turn: int) -> Pair:
    """Neither side always has the machine as the other left it."""
    if turn % 2 == 0:
        return await judge_all(ours, answers), await judge_all(theirs, answers)
    second = await judge_all(theirs, answers)
    return await judge_all(ours, answers), second


def _print_side(side: Side, passes: Sequence[Pass]) -> None:
    rates = [len(run.codes) / run.wall for run in passes]
    per_core = [len(run.codes) / run.cpu for run in passes]
    client = [1000 * run.client / len(run.codes) for run in passes]
    server = [1000 * run.server / len(run.codes) for run in passes]
    print(
        f"  {side.name}, {side.at_once} at once: {spread(rates)} completions/s, "
        f"{spread(per_core)} per core-second; CPU per completion: "
        f"client {spread(client, 1)} ms, server and programs {spread(server, 1)} ms"
    )


def _ratio(pairs: Sequence[Pair], cost: Callable[[Pass], float]) -> str:
    return spread([cost(theirs) / cost(ours) for ours, theirs in pairs])


def _print_differences(answers: Sequence[Answer], pair: Pair) -> None:
    ours, theirs = pair
    judged = zip(answers, ours.codes, theirs.codes, strict=True)
    differing = [answer.problem.problem_id for answer, a, b in judged if a != b]
    cases = sum(map(len, ours.codes))
    print(f"  verdicts: {cases} of cases; answers with a difference: {differing or 'none'}")
