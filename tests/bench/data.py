"""`python -m tests.bench.data`: throughput and memory of the contamination check.

A corpus of JSONL is made of the standard library's source with a few problems leaked into it, then
checked whole and by half, each in a child process of its own. Beside megabytes a second it gives
the ratio of the two times (2 where the time is linear), the peak memory of all processes together,
and the ratio to the floor: the time in which the same bytes are only read and parsed as JSON.
"""

import argparse
import json
import multiprocessing
import os
import random
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from services.data.contamination.check import check_contamination
from services.data.contamination.corpus import find_corpus, read_chunks, read_documents
from services.data.contamination.index import EvalProblem

PROBLEMS, SOLUTION_LINES, DOCUMENT_CHARACTERS, LEAK_EVERY = 1000, 12, 3000, 20_000
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds from start to end of the child, which include its imports; megabytes of memory.

    ``processor`` is the time of the child and its children, which other work disturbs less.
    """

    seconds: float
    processor: float
    memory: float
    result: int


def library() -> list[str]:
    """The standard library's source, in documents as long as a web page."""
    folder = Path(sysconfig.get_path("stdlib"))
    paths = [*sorted(folder.glob("*.py")), *sorted(folder.glob("[a-z]*/*.py"))]
    texts = [path.read_text("utf-8", "replace") for path in paths if "-packages" not in str(path)]
    size = DOCUMENT_CHARACTERS
    return [text[at : at + size] for text in texts for at in range(0, len(text), size)]


def problems() -> list[EvalProblem]:
    """Prompts and solutions of words of their own, as long as HumanEval's."""
    dice = random.Random(0)
    words = [f"{start}{end}" for start in ("ba", "co", "the", "for", "in") for end in "abcdefgh"]
    return [
        EvalProblem(
            "bench",
            str(number),
            " ".join(dice.choices(words, k=70)),
            ("\n".join(" ".join(dice.choices(words, k=6)) for _ in range(SOLUTION_LINES)),),
        )
        for number in range(PROBLEMS)
    ]


def write_corpus(path: Path, megabytes: int) -> int:
    """Write documents of shuffled lines, and return how many problems were leaked."""
    dice = random.Random(1)
    documents = [text.splitlines() for text in library()]
    evaluation = problems()
    size = number = 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1_000_000:
            lines = dice.choice(documents)
            if number % LEAK_EVERY == 0:
                leaked = evaluation[number // LEAK_EVERY % PROBLEMS].statement
                lines = [*lines[:5], leaked.upper(), *lines[5:]]
            row = {"id": number, "text": "\n".join(lines), "meta": {"source": "bench"}}
            size += file.write(json.dumps(row) + "\n")
            number += 1
    return min(PROBLEMS, -(-number // LEAK_EVERY))


def check(path: str, processes: int) -> int:
    report = check_contamination(problems(), [path], processes=processes)
    return len(report.contaminated)


def parse(path: str, _processes: int) -> int:
    files, _ = find_corpus([path])
    chunks = (chunk for file in files for chunk in read_chunks(file))
    return sum(1 for chunk in chunks for _ in read_documents(chunk))


def _send(target: Callable[..., int], path: str, processes: int, end) -> None:
    result = target(path, processes)
    times = os.times()
    end.send((result, sum((times.user, times.system, times.children_user, times.children_system))))


def measure(target: Callable[..., int], path: Path, processes: int) -> Measured:
    receiver, sender = SPAWN.Pipe(duplex=False)
    began = time.perf_counter()
    child = SPAWN.Process(target=_send, args=(target, str(path), processes, sender))
    child.start()
    sender.close()
    memory = max(sampled(child.pid, receiver))
    result, processor = receiver.recv()
    child.join()
    return Measured(time.perf_counter() - began, processor, memory, result)


def sampled(pid: int, receiver) -> Iterator[float]:
    """The sum of resident memory of a process and its children, until there is a result."""
    yield 0.0
    while not receiver.poll(0.05):
        yield sum(map(_resident, family(pid))) / 1e6


def family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0


def halve(path: Path) -> Path:
    """A file with the first half of the lines' bytes."""
    half = path.with_name("half.jsonl")
    left = path.stat().st_size // 2
    with path.open("rb") as whole, half.open("wb") as file:
        while left > 0:
            left -= file.write(whole.readline())
    return half


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder", help="where the corpus is made (default: a temporary one)")
    options = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{len(os.sched_getaffinity(0))} cores, load {load}, {options.processes} processes")
    with TemporaryDirectory(prefix="bench-data-", dir=options.folder) as folder:
        whole = Path(folder) / "whole.jsonl"
        leaked = write_corpus(whole, options.megabytes)
        half = halve(whole)
        size = whole.stat().st_size / 1e6
        floor = measure(parse, whole, options.processes)
        by_half = measure(check, half, options.processes)
        checked = measure(check, whole, options.processes)
    print(f"{size:.0f} MB, {floor.result} documents, {leaked} problems leaked into them")
    for name, one in (("read and parse", floor), ("check", checked)):
        time_taken = f"{one.seconds:.1f} s ({one.processor:.1f} s of processors)"
        rate = f"{size / one.seconds:.0f} MB/s ({size / one.processor:.0f} MB/s a processor)"
        print(f"  {name}: {time_taken}, {rate}, peak memory {one.memory:.0f} MB")
    for name, other in (("whole to half", by_half), ("check to floor", floor)):
        print(
            f"  {name}: time {checked.seconds / other.seconds:.2f}, "
            f"processors {checked.processor / other.processor:.2f}, "
            f"peak memory {checked.memory / other.memory:.2f}"
        )
    assert checked.result == leaked, f"{checked.result} problems found"


if __name__ == "__main__":
    main()
