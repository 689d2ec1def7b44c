"""`make bench-start`: time to the first verdict, from the last one to the exit, and of the help.

Runs `plumb judge --embedded` over recorded HumanEval answers several times and prints medians,
with the range in brackets. The times of the verdicts are those in ``verdicts.jsonl``. The floor is
the same interpreter importing the libraries that every service needs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from services.data.records import write_dataset
from tests.bench.answers import Answer, humaneval_answers
from tests.e2e.plumb import REPOSITORY, command, read_jsonl

_FLOORS = {
    "bare interpreter": ["-c", "pass"],
    "import typer": ["-c", "import typer, typer.rich_utils"],
    "import pydantic, aiohttp.web, redis": ["-c", "import pydantic, aiohttp.web, redis"],
}


@dataclass(frozen=True, slots=True)
class Timed:
    """A finished command: when it began and ended, and the CPU time of all its processes."""

    began: float
    ended: float
    cpu: float

    @property
    def wall(self) -> float:
        return self.ended - self.began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--answers", type=int, default=164)
    arguments = parser.parse_args()
    runs = range(arguments.runs)
    for name, code in _FLOORS.items():
        _print(name, [_timed([sys.executable, *code]).wall for _ in runs])
    _print("plumb --help", [_timed(command("--help")).wall for _ in runs])
    with tempfile.TemporaryDirectory() as folder:
        inputs = _inputs(Path(folder), humaneval_answers(arguments.answers))
        _commands(Path(folder), inputs, arguments.runs)


def _commands(folder: Path, inputs: Sequence[str], runs: int) -> None:
    rows: dict[str, list[float]] = {}
    for number in range(runs):
        output = folder / f"out-{number}"
        timed = _timed(command("judge", "--embedded", *inputs, "--output", str(output)))
        judged = sorted(verdict["judged_at"] for verdict in read_jsonl(output / "verdicts.jsonl"))
        figures = {
            f"command, {len(judged)} answers": timed.wall,
            "start to first verdict": judged[0] - timed.began,
            "first to last verdict": judged[-1] - judged[0],
            "last verdict to exit": timed.ended - judged[-1],
            "CPU time of all processes": timed.cpu,
        }
        for name, seconds in figures.items():
            rows.setdefault(name, []).append(seconds)
    for name, found in rows.items():
        _print(name, found)


def _timed(arguments: Sequence[str]) -> Timed:
    began = time.time()
    process = subprocess.Popen(arguments, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {' '.join(arguments)}")
    return Timed(began, time.time(), usage.ru_utime + usage.ru_stime)


def _print(name: str, seconds: Sequence[float]) -> None:
    print(f"{name:38} {median(seconds):6.2f} s ({min(seconds):.2f}–{max(seconds):.2f})", flush=True)


def _inputs(folder: Path, answers: Sequence[Answer]) -> list[str]:
    """Write the answers as files; return the options that name them."""
    problems = {answer.problem.problem_id: answer.problem for answer in answers}
    data, completions = folder / "bench.parquet", folder / "completions.jsonl"
    write_dataset(str(data), list(problems.values()))
    lines = [
        json.dumps({"problem_id": answer.problem.problem_id, "completion": answer.completion})
        for answer in answers
    ]
    completions.write_text("\n".join(lines) + "\n")
    return ["--data", str(data), "--completions", str(completions)]


if __name__ == "__main__":
    main()
