"""`make bench-pipeline`: the cost of queue, ledger and aggregator without judging.

The sandbox is a stand-in that answers at once, in a process of its own; the rest is real: Redis,
RQ workers, aggregator. Printed are, for each set of judge processes and their concurrency, samples
per second, how many requests the stand-in was answering on average, and CPU time per sample and
resident memory of each process; then, for the demo with the real sandbox, the share of the wall
time in which the sandbox was running programs.

CPU time counts from the moment the run begins (its ``run.json`` is written), so starting the
processes and reading the data are left out, to the end of the command, so writing the artifacts is
included.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil
from aiohttp import web

from services.data.records import write_dataset
from services.sandbox.app import RUN_CASES_VERSION
from shared.harness.wire import CALL_RESULT, CallResult, CaseRun
from shared.schemas import Problem, sha256
from tests.e2e import plumb

_CASE = CaseRun(0, 0.001, 0.001, 0.001, 1_000_000, None, b"3\n", "")
_ANSWER = CALL_RESULT.dump_json(CallResult("ok", cases={0: _CASE}, end="done", seconds=0.001))


@dataclass(frozen=True, slots=True)
class Judges:
    """Judge processes, and the completions that each judges at once."""

    processes: int
    concurrency: int

    def __str__(self) -> str:
        return f"{self.processes} x {self.concurrency}"


@dataclass(slots=True)
class Usage:
    """Most resident memory (MB), and CPU seconds, of the processes of one service."""

    memory: float = 0.0
    cpu: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--answer-after", type=float, default=0.0, help="seconds, of the stand-in")
    parser.add_argument("--judges", nargs="+", default=["1x1", "4x1", "1x16"])
    parser.add_argument("--skip-demo", action="store_true")
    parser.add_argument("--stand-in", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stand_in:
        asyncio.run(_stand_in(arguments.answer_after))
        return
    with tempfile.TemporaryDirectory() as folder:
        data, completions = _inputs(Path(folder), arguments.samples)
        print(f"{arguments.samples} samples of one case each, {os.cpu_count()} cores")
        for number, text in enumerate(arguments.judges):
            judges = Judges(*map(int, text.split("x")))
            output = Path(folder) / f"out-{number}"
            _pipeline(output, data, completions, judges, arguments.answer_after)
        if not arguments.skip_demo:
            _demo(Path(folder) / "demo")


def _inputs(folder: Path, samples: int) -> tuple[Path, Path]:
    tests = json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]})
    problems = [
        Problem(
            dataset="bench",
            split="test",
            problem_id=f"bench_{number}",
            prompt="Add two numbers.",
            data_source="bench",
            ground_truth=tests,
            difficulty="easy",
            sandbox_dataset="bench",
            sandbox_id=str(number),
            prompt_sha256=sha256("Add two numbers."),
        )
        for number in range(samples)
    ]
    write_dataset(str(folder / "bench.parquet"), problems)
    answer = "```python\nprint(sum(map(int, input().split())))\n```"
    lines = [json.dumps({"problem_id": p.problem_id, "completion": answer}) for p in problems]
    (folder / "completions.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "bench.parquet", folder / "completions.jsonl"


def _pipeline(
    output: Path, data: Path, completions: Path, judges: Judges, answer_after: float
) -> None:
    stand_in = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.bench.pipeline",
            "--stand-in",
            f"--answer-after={answer_after}",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert stand_in.stdout is not None
    environment = os.environ | {
        "SANDBOX_URLS": stand_in.stdout.readline().strip(),
        "PLUMBLINE_JUDGE_CONCURRENCY": str(judges.concurrency),
    }
    arguments = ["judge", "--data", str(data), "--completions", str(completions), "--embedded"]
    settings = [f"judge.workers={judges.processes}", "sandbox.max_concurrency=64"]
    process = subprocess.Popen(
        plumb.command(*arguments, "--output", str(output), *settings),
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    usage = _watch(process, output / "run.json")
    assert process.returncode == 0
    stand_in.terminate()
    stand_in.wait()
    run = json.loads((output / "run.json").read_text())
    assert run["complete"]
    samples, seconds = run["samples"], run["active_seconds"]
    cpu = {name: 1000 * one.cpu / samples for name, one in usage.items()}
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
                name = names[member] = _part(command)
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


def _part(command: list[str]) -> str:
    text = " ".join(command)
    if "redis-server" in text:
        return "redis"
    module = next((part for part in command if part.startswith("services.")), "plumb")
    return "runner" if module == "services.cli" else module.removeprefix("services.")


def _demo(output: Path) -> None:
    busy: list[float] = []
    process = subprocess.Popen(plumb.demo_run(output), stdout=subprocess.DEVNULL)
    port_file = output / ".plumbline" / "sandbox.port"

    def poll() -> None:
        while process.poll() is None:
            try:
                url = f"http://127.0.0.1:{port_file.read_text().strip()}/metrics"
                text = urllib.request.urlopen(url, timeout=2).read().decode()
            except (OSError, ValueError):
                time.sleep(0.1)
                continue
            line = next(x for x in text.splitlines() if x.startswith("plumbline_sandbox_busy"))
            busy.append(float(line.split()[-1]))
            time.sleep(0.1)

    poller = threading.Thread(target=poll)
    poller.start()
    assert process.wait() == 0
    poller.join()
    run = json.loads((output / "run.json").read_text())
    places = run["sandbox"]["concurrency"]
    share = busy[-1] / (run["active_seconds"] * places)
    print(
        f"demo: {run['samples']} samples in {run['active_seconds']:.1f} s; its {places} places "
        f"ran programs {busy[-1]:.1f} s, {share:.0%} of the wall time"
    )


async def _stand_in(answer_after: float) -> None:
    async def offer(_request: web.Request) -> web.Response:
        return web.Response(headers={"Plumbline-Run-Cases": RUN_CASES_VERSION})

    async def run_cases(request: web.Request) -> web.Response:
        await request.read()
        if answer_after:
            await asyncio.sleep(answer_after)
        return web.json_response(body=_ANSWER)

    async def ping(_request: web.Request) -> web.Response:
        return web.json_response("pong")

    app = web.Application()
    app.router.add_head("/run_cases", offer)
    app.router.add_post("/run_cases", run_cases)
    app.router.add_get("/v1/ping", ping)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    main()
