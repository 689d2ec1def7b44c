"""`python -m tests.bench.view`: `plumb view` over two runs of 100,000 samples and 200 of 1,000.

Real folders and the real command; this process asks as a page would. Printed are the seconds until
all samples are in the index, the first time and the second; the server's resident memory while it
reads and while it answers; and how long answers took, from the request to their last byte.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from tests.bench.finished_folders import write_finished

_DATASET = "codecontests_test"
_SORTS = ("judged_at", "pass_ratio", "output_tokens", "gen_time", "total_judge_time")
_FILTERS = (
    "status=timeout,wrong_answer",
    "tag=dp,math",
    "difficulty=hard&flipped=1",
    "tokens=100..400",
    "tokens=100..400&judge_time=0.5..&memory=..200",
    "gen_time=240..",
    "q=p099",
)
_SEARCHES = (
    *("text=import", "text=self.", "text=valueerror", "text=zqxj", "text=%3D%3D%20"),
    *("text=return none&in=completion", "text=IndexError&in=stderr", "text=raise&status=timeout"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000, help="of each of the two runs")
    parser.add_argument("--runs", type=int, default=200, help="number of the small runs")
    parser.add_argument("--answers", type=int, default=100, help="requests of each kind")
    parser.add_argument("--folder", type=Path, help="keeps the runs and the index there")
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for name, runs, samples in (("two", 2, arguments.samples), ("many", arguments.runs, 1000)):
            made = _make(folder / name, "run", runs, samples)
            print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
            _bench(made, folder / "cache", runs, samples, arguments.answers)


def _make(folder: Path, name: str, runs: int, samples: int) -> Path:
    for number in range(runs):
        if not (folder / f"{name}{number}" / "run.json").exists():
            write_finished(
                folder / f"{name}{number}", f"{name}{number}", samples, number, 3600.0 * number
            )
    return folder


def _bench(folder: Path, cache: Path, runs: int, samples: int, answers: int) -> None:
    print(f"\n{runs} runs of {samples} samples")
    total = runs * samples
    for time_of in ("first", "second"):
        with _view(folder, cache) as (process, address, began):
            asked: list[float] = []
            while sum(run["verdicts"] for run in _ask(address, "api/runs", asked).values()) < total:
                time.sleep(0.1)
            while any(run["reading"] for run in _ask(address, "api/runs", asked).values()):
                time.sleep(0.05)
            seconds = time.monotonic() - began
            cpu = sum(process.cpu_times()[:2])
            print(
                f"{time_of} time: all read after {seconds:.1f} s from the command on "
                f"({total / seconds:.0f} samples/s; {cpu:.1f} s of CPU), "
                f"RSS at most {_peak(process):.0f} MB"
            )
            print_times(f"  list of runs meanwhile, {time_of} time", asked)
            if time_of == "second":
                _answers(address, answers)
                memory = f"{_memory(process):.0f} MB, at most {_peak(process):.0f} MB"
                print(f"RSS after the answers: {memory}")
    size = sum(path.stat().st_size for path in cache.rglob("index.sqlite*"))
    print(f"indexes so far: {size / 1e6:.0f} MB")


def _answers(address: str, answers: int) -> None:
    names = sorted(_ask(address, "api/runs"))
    chance = random.Random(0)
    run = f"api/runs/{quote(names[0], safe='')}"
    pair = ",".join(_quoted(name) for name in (names[0], names[-1]))
    protocol = _ask(address, "api/history")["groups"][0]["protocol"]
    rows = _ask(address, f"{run}/samples?limit=200&sort=output_tokens")["samples"]
    kinds: dict[str, Iterable[str]] = {
        "list of runs": ["api/runs"],
        "folders": ["api/folders"],
        "run": [f"api/runs/{quote(name, safe='')}" for name in names],
        "samples, by problem": [f"{run}/samples?limit=50"],
        "samples, sorted": [
            f"{run}/samples?sort={sort}&order={order}"
            for sort in _SORTS
            for order in ("asc", "desc")
        ],
        "samples, filtered": [
            f"{run}/samples?{text}&sort={sort}&order=desc"
            for text in _FILTERS
            for sort in ("problem", "output_tokens")
        ],
        "samples, searched": [f"{run}/samples?{_quoted(text)}" for text in _SEARCHES],
        "counts beside filters": [f"{run}/facets?{_quoted(text)}" for text in _FILTERS + _SEARCHES],
        "groups of failures": [f"{run}/failures?{_quoted(text)}" for text in _FILTERS + _SEARCHES],
        "performance": [f"{run}/performance"],
        "sample": [
            f"{run}/samples/{row['dataset']}/{row['problem_id']}/{row['sample_index']}"
            for row in chance.sample(rows, min(len(rows), 100))
        ],
        "comparison": [f"api/compare?runs={pair}"],
        "flips": [
            f"api/compare/flips?runs={pair}&dataset={_DATASET}&kind={kind}"
            for kind in ("flips", "changed", "all")
        ],
        "gate": [f"api/gate?baseline={_quoted(names[0])}&run={_quoted(names[-1])}"],
        "list of histories": ["api/history"],
        "history": [f"api/history?protocol={protocol}"],
    }
    for name, paths in kinds.items():
        times: list[float] = []
        first = time.monotonic()
        for path in islice(cycle(paths), answers):
            _ask(address, path, times)
            if len(times) == 1:
                first = time.monotonic() - first
        print_times(f"  {name} (first {first * 1000:.0f} ms)", times)


def _quoted(query: str) -> str:
    return quote(query, safe="=&.,%")


def _ask(address: str, path: str, times: list[float] | None = None) -> Any:
    began = time.monotonic()
    with urllib.request.urlopen(address + path, timeout=120) as answer:
        body = answer.read()
    if times is not None:
        times.append(time.monotonic() - began)
    return json.loads(body)


@contextmanager
def _view(folder: Path, cache: Path) -> Iterator[tuple[psutil.Process, str, float]]:
    """Start the command; yields its process, its address and when it was started."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "services.cli", "view", str(folder), "--port", "0"],
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield psutil.Process(process.pid), process.stdout.readline().strip(), began
    finally:
        process.terminate()
        process.communicate()


def _memory(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 1e6)


def _peak(process: psutil.Process) -> float:
    """The largest resident memory so far, in MB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def print_times(name: str, times: list[float]) -> None:
    if len(times) < 2:
        return
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    print(
        f"{name}: {len(times)} answers, p50 {cuts[49] * 1000:.0f} ms, "
        f"p95 {cuts[94] * 1000:.0f} ms, most {max(times) * 1000:.0f} ms"
    )


if __name__ == "__main__":
    main()
