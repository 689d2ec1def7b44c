"""`make bench-pipeline`: the cost of queue, ledger and aggregator without judging.

The sandbox is a stand-in that answers at once, in a process of its own; the rest is real: Redis,
RQ workers, aggregator. Printed are, for each set of judge processes and their concurrency, samples
per second, how many requests the stand-in was answering on average, and CPU time per sample and
resident memory of each process.

CPU time counts from the moment the run begins (its ``run.json`` is written), so starting the
processes and reading the data are left out, to the end of the command, so writing the artifacts is
included.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from services.data.records import write_dataset
from shared.schemas import StdioTests
from tests.bench.instant_sandbox import instant_sandbox
from tests.e2e import plumb
from tests.e2e.reward import stdio_problem


@dataclass(frozen=True, slots=True)
class Judges:
    """Judge processes, and the completions that each judges at once."""

    processes: int
    concurrency: int

    def __str__(self) -> str:
        return f"{self.processes} x {self.concurrency}"


@dataclass(slots=True)
class Usage:
    """Resident memory (MB) and CPU seconds of the processes of one service."""

    memory: float = 0.0
    cpu: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--answer-after", type=float, default=0.0, help="seconds, of the stand-in")
    parser.add_argument("--judges", nargs="+", default=["1x1", "4x1", "1x16"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, completions = _inputs(Path(folder), arguments.samples)
        print(f"{arguments.samples} samples of one case each, {os.cpu_count()} cores")
        for number, text in enumerate(arguments.judges):
            judges = Judges(*map(int, text.split("x")))
            output = Path(folder) / f"out-{number}"
            _pipeline(output, data, completions, judges, arguments.answer_after)


def _inputs(folder: Path, samples: int) -> tuple[Path, Path]:
    tests = StdioTests(inputs=["1 2\n"], outputs=["3\n"])
    problems = [stdio_problem(f"bench_{number}", tests, "bench") for number in range(samples)]
    write_dataset(str(folder / "bench.parquet"), problems)
    answer = "```python\nprint(sum(map(int, input().split())))\n```"
    lines = [json.dumps({"problem_id": p.problem_id, "completion": answer}) for p in problems]
    (folder / "completions.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "bench.parquet", folder / "completions.jsonl"


def _pipeline(
    output: Path, data: Path, completions: Path, judges: Judges, answer_after: float
) -> None:
    arguments = ["judge", "--data", str(data), "--completions", str(completions), "--embedded"]
    settings = [f"judge.workers={judges.processes}", "sandbox.max_concurrency=64"]
    settings.append("judge.canaries=false")  # the stand-in judges them wrongly
    with instant_sandbox(answer_after) as url:
        environment = os.environ | {
            "SANDBOX_URLS": url,
            "PLUMBLINE_JUDGE_CONCURRENCY": str(judges.concurrency),
        }
        process = subprocess.Popen(
            plumb.command(*arguments, "--output", str(output), *settings),
            stdout=subprocess.DEVNULL,
            env=environment,
        )
        usage = _watch(process, output / "run.json")
    assert process.returncode == 0
    run = json.loads((output / "run.json").read_text())
    assert run["complete"]
    samples, seconds = run["samples"], run["active_seconds"]
    cpu = {name: 1000 * used.cpu / samples for name, used in usage.items()}
    print(f"judges {judges}: {samples / seconds:.0f} samples/s ({seconds:.1f} s)")
    print(f"  requests in flight on average: {answer_after * samples / seconds:.1f}")
    print(
        f"  CPU per sample: {sum(cpu.values()):.2f} ms ("
        + ", ".join(f"{name} {value:.2f}" for name, value in cpu.items())
        + ")"
    )
    print("  resident, most seen: " + ", ".join(f"{k} {v.memory:.0f} MB" for k, v in usage.items()))


def _watch(process: subprocess.Popen[bytes], began: Path) -> dict[str, Usage]:
    """Sum up the processes of each service, until the command ends; CPU since ``began`` exists."""
    memory: dict[str, float] = {}
    cpu: dict[psutil.Process, float] = {}
    before: dict[psutil.Process, float] = {}
    names: dict[psutil.Process, str] = {}
    while process.poll() is None:
        running = began.exists()
        for member in [*plumb.children(process.pid), psutil.Process(process.pid)]:
            try:
                command = member.cmdline()
                if not command:  # it is ending
                    continue
                name = names[member] = service_of(command)
                memory[name] = max(memory.get(name, 0.0), member.memory_info().rss / 1e6)
                times = member.cpu_times()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            cpu[member] = times.user + times.system
            if not running:
                before[member] = cpu[member]
        time.sleep(0.05)
    usage = {name: Usage(memory=most) for name, most in memory.items()}
    for member, seconds in cpu.items():
        usage[names[member]].cpu += seconds - before.get(member, 0.0)
    return usage


def service_of(command: list[str]) -> str:
    """The service that a process is, by its command line."""
    text = " ".join(command)
    if "redis-server" in text:
        return "redis"
    module = next((part for part in command if part.startswith("services.")), "plumb")
    return "runner" if module == "services.cli" else module.removeprefix("services.")


if __name__ == "__main__":
    main()
