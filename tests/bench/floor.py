"""Total CPU time of judging against the CPU time of the answers themselves.

What is neither is what processes cost (a fork and exit of an empty warmed process each) and the
rest: server, judge, folders, limits, comparison.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from shared.schemas import StdioTests
from tests.bench.answers import Answer, make_problem
from tests.bench.passes import Side, judge_all, spread

_EMPTY_CASES, _EMPTY_RUNS = 100, 3
# Modules that programs of contests import, loaded as in a zygote.
_FORKS = """
import bisect, collections, functools, heapq, itertools, json, math, os, random, re, resource
import string, sys, time

def used():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)

count = int(sys.argv[1])
cpu, began = used(), time.monotonic()
for _ in range(count):
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
wall = time.monotonic() - began
print(json.dumps({"cpu": (used() - cpu) / count, "wall": wall / count}))
"""


@dataclass(frozen=True, slots=True)
class ForkCost:
    """Seconds of one fork and exit of an empty warmed process, parent's part included."""

    cpu: float
    wall: float


def fork_cost(count: int = 1000) -> ForkCost:
    """Measure it with the interpreter that runs the programs."""
    interpreter = os.path.realpath(sys.executable)
    command = [interpreter, "-I", "-c", _FORKS, str(count)]
    return ForkCost(**json.loads(subprocess.check_output(command)))


async def print_floor(
    side: Side, answers: Sequence[Answer], cases: int, count: int, fork: ForkCost
) -> None:
    """Print what a completion costs and what of it is the answer's own, ``count`` passes."""
    # A child that runs nothing has CPU time too: that of its fork and of its preparation.
    runs = [await side.judge(_nothing()) for _ in range(_EMPTY_RUNS)]
    empty = statistics.median(run.cpu / _EMPTY_CASES for run in runs)
    totals, floors = [], []
    for _ in range(count):
        done = await judge_all(side, answers)
        totals.append(done.cpu / len(answers))
        floors.append(sum(one.cpu for one in done.judged) / len(answers) - cases * empty)
    forks = [cases * fork.cpu] * count
    parts = list(zip(totals, floors, forks, strict=True))
    rests = [total - floor - forked for total, floor, forked in parts]
    bases = [floor + forked for _, floor, forked in parts]
    print(f"  {side.name}, {side.at_once} at once, CPU per completion in ms:")
    print(f"    total {_ms(totals)}; the answers' own (floor) {_ms(floors)}")
    print(f"    {cases} forks and exits of an empty process {1000 * forks[0]:.1f}")
    print(f"    rest {_ms(rests)}, share of the total {_share(rests, totals)}")
    print(f"    rest / (floor + forks) {_share(rests, bases)}")
    print(f"    total / floor {spread([t / f for t, f in zip(totals, floors, strict=True)])}")


def _nothing() -> Answer:
    tests = StdioTests(inputs=[""] * _EMPTY_CASES, outputs=[""] * _EMPTY_CASES)
    return Answer(make_problem("nothing", tests), "```python\npass\n```")


def _ms(seconds: Sequence[float]) -> str:
    return spread([1000 * one for one in seconds], 1)


def _share(parts: Sequence[float], wholes: Sequence[float]) -> str:
    return spread([100 * a / b for a, b in zip(parts, wholes, strict=True)], 0) + " %"
