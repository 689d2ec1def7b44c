"""`make bench-judge`: the method `batch` against verl's own `compute_score`, in one sandbox.

Both judge the same answers with the same cases in turn, as many answers at once as there are cores;
every case should get the same code. Then functions (HumanEval) against the sandbox's `/submit`, the
memory that judging takes, and what the time of a completion is made of. `SANDBOX_URL` names a
sandbox that runs already, `PLUMBLINE_REAL_DATA` the folder of public data; without them it is the
sandbox of this repository, and the demo's answers with their cases repeated.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp

from services.judge.sandbox import SandboxClient, SandboxUnavailableError
from shared.config import load_config
from shared.schemas import Problem, StdioTests
from tests.bench.answers import (
    Answer,
    humaneval_answers,
    make_problem,
    real_data,
    stdio_answers,
)
from tests.bench.judges import JudgeAnswer, Judged, by_method, by_verl, client
from tests.parity.verl import ScorerMissingError
from tests.sandboxes import EXTERNAL, sandbox

_CORES = len(os.sched_getaffinity(0))
_LIMITS = ["sandbox.timeout=10", "sandbox.memory_limit_mb=1024"]
# verl's comparison, so that every verdict has to be the same.
_BATCH = [*_LIMITS, "judge.method=batch", "judge.checker=exact"]


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    judge: JudgeAnswer


@dataclass(frozen=True, slots=True)
class Pass:
    """All answers judged once. Times are seconds; CPU is that of this process alone."""

    wall: float
    cpu: float
    judged: Sequence[Judged]


@dataclass(frozen=True, slots=True)
class Pair:
    ours: Pass
    theirs: Pass


def main() -> None:
    arguments = _arguments()
    if arguments.only:
        asyncio.run(_alone(arguments))
        return
    with tempfile.TemporaryDirectory() as folder, sandbox(Path(folder)) as url:
        where = f"the one at {EXTERNAL}" if EXTERNAL in os.environ else "this repository's"
        data = "public data" if real_data() else "the demo's answers, their cases repeated"
        print(f"{_CORES} cores; sandbox: {where}; answers: {data}")
        arguments.url = url
        asyncio.run(_bench(arguments))
        for name in ("batch", "verl"):
            _memory(name, url)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--answers", type=int, default=12)
    parser.add_argument("--cases", type=int, nargs="*", default=[20, 100])
    parser.add_argument("--functions", type=int, default=40, help="HumanEval answers")
    parser.add_argument("--slots", type=int, default=2 * _CORES, help="verl's calls at once")
    parser.add_argument("--only", choices=["batch", "verl"], help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    return parser.parse_args()


async def _bench(arguments: argparse.Namespace) -> None:
    async with client(arguments.url) as ours:
        batch = Side("batch", by_method(load_config(None, _BATCH), ours))
        theirs = _verl(arguments, ours)
        for cases in arguments.cases:
            answers = stdio_answers(arguments.answers, cases)
            print(f"\n{len(answers)} answers with {cases} cases each, {_CORES} answers at once")
            await _compare(batch, theirs, answers, arguments.pairs)
            await _parts(batch, answers, ours, cases)
        if arguments.functions:
            await _functions(ours, humaneval_answers(arguments.functions), arguments.pairs)


def _verl(arguments: argparse.Namespace, ours: SandboxClient) -> Side:
    config = load_config(None, _LIMITS)
    try:
        return Side("verl's compute_score", by_verl(config, arguments.url, arguments.slots))
    except ScorerMissingError as error:
        print(f"{error}; our compute_score takes its place")
    settings = ["judge.method=compute_score", f"judge.case_concurrency={arguments.slots}"]
    return Side("our compute_score", by_method(load_config(None, [*_LIMITS, *settings]), ours))


# Both sides in turn


async def _compare(
    ours: Side,
    theirs: Side,
    answers: Sequence[Answer],
    count: int,
    said: Callable[[Judged], object] = lambda judged: list(judged.codes),
) -> None:
    for side in (ours, theirs):  # what only the first time costs
        await _judge_all(side.judge, answers[:2])
    pairs = [await _pair(ours, theirs, answers, turn) for turn in range(count)]
    for side, passes in ((ours, [p.ours for p in pairs]), (theirs, [p.theirs for p in pairs])):
        walls = [1000 * p.wall / len(answers) for p in passes]
        cpus = [1000 * p.cpu / len(answers) for p in passes]
        rate = 1000 / statistics.median(walls)
        print(
            f"  {side.name}: {_spread(walls)} ms per completion ({rate:.2f}/s), "
            f"judge's own CPU {_spread(cpus)} ms"
        )
    print(f"  ratio {_spread([pair.theirs.wall / pair.ours.wall for pair in pairs])}")
    _print_differences(answers, pairs[0], said)


async def _pair(ours: Side, theirs: Side, answers: Sequence[Answer], turn: int) -> Pair:
    # Neither always has the machine as the other left it.
    if turn % 2:
        second = await _judge_all(theirs.judge, answers)
        return Pair(await _judge_all(ours.judge, answers), second)
    return Pair(await _judge_all(ours.judge, answers), await _judge_all(theirs.judge, answers))


async def _judge_all(judge: JudgeAnswer, answers: Sequence[Answer], at_once: int = _CORES) -> Pass:
    slots = asyncio.Semaphore(at_once)

    async def one(answer: Answer) -> Judged:
        async with slots:
            return await judge(answer)

    cpu, began = time.process_time(), time.monotonic()
    judged = await asyncio.gather(*(one(answer) for answer in answers))
    return Pass(time.monotonic() - began, time.process_time() - cpu, judged)


def _print_differences(
    answers: Sequence[Answer], pair: Pair, said: Callable[[Judged], object]
) -> None:
    judged = list(zip(answers, pair.ours.judged, pair.theirs.judged, strict=True))
    differing = [(answer, a, b) for answer, a, b in judged if said(a) != said(b)]
    codes = sum(len(one.codes) for one in pair.ours.judged)
    print(f"  verdicts: {codes} of cases, {len(differing)} answers with a difference")
    for answer, ours, theirs in differing:
        words = f"{ours.last_words!r}, {theirs.last_words!r}"
        difference = _first_difference(ours.codes, theirs.codes)
        print(f"    {answer.problem.problem_id}: {difference}; {words}")


def _first_difference(ours: Sequence[int], theirs: Sequence[int]) -> str:
    places = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b]
    if not places:
        return f"{len(ours)} cases against {len(theirs)}"
    return f"{len(places)} cases, first {places[0]}: {ours[places[0]]}, {theirs[places[0]]}"


# What the time goes into, one answer at a time


async def _parts(side: Side, answers: Sequence[Answer], ours: SandboxClient, cases: int) -> None:
    alone = await _judge_all(side.judge, answers, at_once=1)
    whole = alone.wall / len(answers)
    # A child that runs nothing has CPU time too: it is the harness's, and part of its fork.
    empty = statistics.fmean([(await side.judge(_nothing(101))).cpu / 101 for _ in range(3)])
    floor = sum(judged.cpu for judged in alone.judged) / len(answers) - cases * empty
    http = await _seconds(partial(_ping, ours), 20)
    start = await _seconds(partial(_run_nothing, ours), 10) - http
    one = await _seconds(partial(side.judge, _nothing(1)), 10)
    many = await _seconds(partial(side.judge, _nothing(101)), 3)
    fork = (many - one) / 100
    parts = {
        "answers' own CPU (floor)": floor,
        "HTTP": http,
        "interpreter start": start,
        "harness start": one - fork - start - http,
        f"{cases} forks and exits of {1000 * fork:.2f} ms": cases * fork,
    }
    parts["rest"] = whole - sum(parts.values())
    print(f"  {side.name}, one answer at a time: {1000 * whole:.1f} ms, of which")
    for name, seconds in parts.items():
        print(f"    {name}: {1000 * seconds:.1f} ms")
    print(f"  whole / floor {whole / floor:.2f}" if floor else "  the floor is not known")


def _nothing(cases: int) -> Answer:
    tests = StdioTests(inputs=[""] * cases, outputs=[""] * cases)
    return Answer(make_problem("nothing", tests), "```python\npass\n```")


async def _ping(ours: SandboxClient) -> None:
    async with ours.pool.permit() as permit, aiohttp.request("GET", f"{permit.url}/v1/ping"):
        pass


async def _run_nothing(ours: SandboxClient) -> None:
    settings = [*_LIMITS, "judge.method=compute_score"]
    await by_method(load_config(None, settings), ours)(_nothing(1))


async def _seconds(call: Callable[[], Awaitable[object]], times: int) -> float:
    measured = []
    for _ in range(times):
        began = time.monotonic()
        await call()
        measured.append(time.monotonic() - began)
    return statistics.median(measured)


# Functions


async def _functions(ours: SandboxClient, answers: Sequence[Answer], pairs: int) -> None:
    print(f"\n{len(answers)} HumanEval answers, {_CORES} at once")
    submit = [*_LIMITS, "judge.method=submit"]
    try:
        await _compare(
            Side("batch", by_method(load_config(None, _BATCH), ours)),
            Side("/submit", by_method(load_config(None, submit), ours)),
            answers,
            pairs,
            said=lambda judged: set(judged.codes) == {1},
        )
    except SandboxUnavailableError as error:
        print(f"  not measured: {error}")


# Memory, in a process that judges in one way only and has what a judge worker has


def _memory(name: str, url: str) -> None:
    command = [sys.executable, "-m", "tests.bench.judge", "--only", name, "--url", url]
    given = [[answer.problem.model_dump(), answer.completion] for answer in stdio_answers(4, 100)]
    done = subprocess.run(command, input=json.dumps(given), stdout=subprocess.PIPE, text=True)
    print(done.stdout.strip() or f"memory of {name}: not measured")


async def _alone(arguments: argparse.Namespace) -> None:
    import services.judge.jobs  # noqa: F401  what a worker has loaded beside

    before = _resident()
    answers = [Answer(Problem(**problem), text) for problem, text in json.load(sys.stdin)]
    async with client(arguments.url) as ours:
        judge = by_method(load_config(None, _BATCH), ours)
        if arguments.only == "verl":
            judge = _verl(arguments, ours).judge
        await _judge_all(judge, answers, at_once=1)
    print(
        f"resident memory of a judge, {arguments.only}: {before:.0f} MB, then {_resident():.0f} MB"
    )


def _resident() -> float:
    # Not getrusage: there a new process begins with the peak of the one that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


if __name__ == "__main__":
    main()
