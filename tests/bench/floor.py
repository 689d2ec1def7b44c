"""Total CPU time of judging against the CPU time of the answers themselves.

What is neither is what processes cost (a fork and exit of an empty warmed process each) and the
rest: server, judge, folders, limits, comparison.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from shared.schemas import StdioTests
from tests.bench.answers import Answer, make_problem
from tests.bench.passes import Side, judge_all, spread

_EMPTY_CASES = 100
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


async def print_floor(side: Side, answers: Sequence[Answer], cases: int, count: int) -> None:
    """Print what a completion costs and what of it is the answer's own, ``count`` passes."""
    profiles = [await _profile(side, answers, cases) for _ in range(count)]
    floors, forks = [p.floor for p in profiles], [p.forks for p in profiles]
    totals, rests = [p.total for p in profiles], [p.rest for p in profiles]
    bases = [p.floor + p.forks for p in profiles]
    print(f"  {side.name}, {side.at_once} at once, CPU per completion in ms:")
    print(f"    total {_ms(totals)}; the answers' own (floor) {_ms(floors)}")
    print(f"    {cases} forks and exits of an empty process {_ms(forks)}")
    print(f"    rest {_ms(rests)}: {_share(rests, totals)} of the total, ", end="")
    print(f"{_share(rests, bases)} of floor and forks")
    print(f"    total / floor {spread([p.total / p.floor for p in profiles])}")


@dataclass(frozen=True, slots=True)
class _Profile:
    """CPU seconds per completion."""

    total: float
    floor: float
    forks: float

    @property
    def rest(self) -> float:
        return self.total - self.floor - self.forks


async def _profile(side: Side, answers: Sequence[Answer], cases: int) -> _Profile:
    # All at the same time: on a shared machine a fork costs more at times.
    fork = fork_cost()
    before = await _empty_case(side)
    done = await judge_all(side, answers)
    empty = (before + await _empty_case(side)) / 2
    judged = sum(one.cpu for one in done.judged) / len(answers)
    return _Profile(done.cpu / len(answers), judged - cases * empty, cases * fork.cpu)


async def _empty_case(side: Side) -> float:
    """CPU seconds of a case that runs nothing: those of its fork and of its preparation."""
    done = await judge_all(side, [_nothing()] * 2 * side.at_once)
    return sum(one.cpu for one in done.judged) / len(done.judged) / _EMPTY_CASES


def _nothing() -> Answer:
    tests = StdioTests(inputs=[""] * _EMPTY_CASES, outputs=[""] * _EMPTY_CASES)
    return Answer(make_problem("nothing", tests), "```python\npass\n```")


def _ms(seconds: Sequence[float]) -> str:
    return spread([1000 * one for one in seconds], 1)


def _share(parts: Sequence[float], wholes: Sequence[float]) -> str:
    return spread([100 * a / b for a, b in zip(parts, wholes, strict=True)], 0) + " %"
