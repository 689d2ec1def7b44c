"""`make bench-pipeline`: the cost of queue, ledger and aggregator without judging.

The sandbox is a stand-in that answers at once, in a process of its own; the rest is real: Redis,
RQ workers, aggregator. Printed are samples per second with 1 and with 4 workers and the resident
memory of each process; then, for the demo with the real sandbox, the share of the wall time in
which the sandbox was running programs.
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
from pathlib import Path

import psutil
from aiohttp import web

from services.data.records import write_dataset
from shared.schemas import Problem, sha256
from tests.e2e import plumb

_ANSWER = {
    "status": "Success",
    "message": "",
    "compile_result": None,
    "run_result": {
        "status": "Finished",
        "execution_time": 0.001,
        "return_code": 0,
        "stdout": "3\n",
        "stderr": "",
    },
    "executor_pod_name": None,
    "files": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--stand-in", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stand_in:
        asyncio.run(_stand_in())
        return
    with tempfile.TemporaryDirectory() as folder:
        data, completions = _inputs(Path(folder), arguments.samples)
        print(f"{arguments.samples} samples of one case each, {os.cpu_count()} cores")
        for workers in (1, 4):
            _pipeline(Path(folder) / f"out-{workers}", data, completions, workers)
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


def _pipeline(output: Path, data: Path, completions: Path, workers: int) -> None:
    stand_in = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.pipeline", "--stand-in"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert stand_in.stdout is not None
    environment = os.environ | {"SANDBOX_URLS": stand_in.stdout.readline().strip()}
    arguments = ["judge", "--data", str(data), "--completions", str(completions), "--embedded"]
    process = subprocess.Popen(
        plumb.command(*arguments, "--output", str(output), f"judge.workers={workers}"),
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    memory = _watch_memory(process)
    assert process.returncode == 0
    stand_in.terminate()
    stand_in.wait()
    run = json.loads((output / "run.json").read_text())
    assert run["complete"]
    rate = run["samples"] / run["active_seconds"]
    print(f"workers {workers}: {rate:.0f} samples/s ({run['active_seconds']:.1f} s)")
    print("  resident, most seen: " + ", ".join(f"{k} {v:.0f} MB" for k, v in memory.items()))


def _watch_memory(process: subprocess.Popen[bytes]) -> dict[str, float]:
    most: dict[str, float] = {}
    while process.poll() is None:
        try:
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
            for member in family:
                name = _part(member.cmdline())
                most[name] = max(most.get(name, 0.0), member.memory_info().rss / 1e6)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        time.sleep(0.1)
    return most


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


async def _stand_in() -> None:
    async def run_code(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response(_ANSWER)

    async def ping(_request: web.Request) -> web.Response:
        return web.json_response("pong")

    app = web.Application()
    app.router.add_post("/run_code", run_code)
    app.router.add_get("/v1/ping", ping)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    main()
