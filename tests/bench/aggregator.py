"""`python -m tests.bench.aggregator`: indexing throughput and page latency under load.

A real Redis and a real aggregator process; this process writes completions and verdicts as runner
and judges would, as fast as it can, and a thread asks for pages all the while. Printed are samples
per second into the index, the aggregator's resident memory at 10 % and at the end, and how long
pages took to be answered.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zlib
from pathlib import Path

import psutil
from redis import Redis

from shared.ledger import Ledger
from shared.plan import make_plan
from shared.schemas import Generation, Problem, SampleId, Verdict, sha256
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.shared.ledgers import enter

RUN = "bench"
_PATHS = (
    "/api/runs",
    "/api/runs/bench",
    "/api/runs/bench/samples?sort=judged_at&order=desc&limit=100",
    "/api/runs/bench/samples?status=timeout&limit=100",
    "/api/runs/bench/samples?q=p99&sort=pass_ratio&order=desc",
    "/api/runs/bench/samples?tag=dp&limit=200",
    "/api/runs/bench/samples/d1/p10/0",
    "/metrics",
)
_TESTS = json.dumps({"inputs": ["1\n" * 500] * 20, "outputs": ["2\n"] * 20})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder) / "redis")
        try:
            _bench(server.url, Path(folder), arguments.samples)
        finally:
            server.stop()


def _bench(url: str, folder: Path, samples: int) -> None:
    redis = Redis.from_url(url)
    aggregator, address = _start(url, folder)
    asked: dict[str, list[float]] = {path: [] for path in _PATHS}
    done = threading.Event()
    asking = threading.Thread(target=_ask, args=(address, asked, done))
    try:
        filler = threading.Thread(target=fill, args=(redis, samples))
        began = time.monotonic()
        filler.start()
        wait(address, samples // 10)
        asking.start()
        early = _memory(aggregator)
        wait(address, samples)
        seconds = time.monotonic() - began
        late = _memory(aggregator)
        done.set()
        filler.join()
        asking.join()
    finally:
        aggregator.terminate()
        aggregator.wait()
    print(f"{samples} samples, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"indexed {samples / seconds:.0f} samples/s, while they were written ({seconds:.0f} s)")
    print(f"resident memory: {early:.0f} MB at {samples // 10}, {late:.0f} MB at {samples}")
    print(f"index: {(folder / 'index' / 'index.sqlite').stat().st_size / 1e6:.0f} MB")
    print_times("all pages", [one for times in asked.values() for one in times])
    for path, times in asked.items():
        print_times(path, times)


def _start(url: str, folder: Path) -> tuple["subprocess.Popen[bytes]", str]:
    port = folder / "port"
    settings = {
        "REDIS_URL": url,
        "PORT": "0",
        "PLUMBLINE_PORT_FILE": str(port),
        "PLUMBLINE_INDEX_DIR": str(folder / "index"),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "services.aggregator"],
        env=os.environ | settings,
        stdout=subprocess.DEVNULL,
    )
    while not port.exists():
        assert process.poll() is None
        time.sleep(0.05)
    return process, f"http://127.0.0.1:{port.read_text().strip()}"


def fill(redis: Redis, samples: int) -> None:
    """Write as the ledger does, many samples at once and without jobs that nobody takes."""
    problems = [_problem(number) for number in range(max(1, samples // 10))]
    plan = make_plan(problems, lambda _problem: range(10))
    ledger = Ledger(redis, RUN)
    enter(ledger, problems, plan)
    base = f"plumbline:run:{RUN}"
    chance = random.Random(0)
    for start in range(0, samples, 200):
        pipe = redis.pipeline(transaction=True)
        for number in range(start, min(start + 200, samples)):
            made, judged = _records(chance, SampleId("d1", f"p{number // 10}", number % 10))
            key = made.sample.key
            pipe.hset(f"{base}:completions", key, zlib.compress(made.model_dump_json().encode(), 1))
            pipe.hset(f"{base}:hashes", key, made.completion_sha256)
            pipe.hset(f"{base}:verdicts", key, judged.model_dump_json())
            fields = {"sample": key, "status": judged.final_status.value}
            pipe.xadd(f"{base}:events", {**fields, "accepted": int(judged.accepted)})
        pipe.execute()


def _problem(number: int) -> Problem:
    return Problem(
        dataset="d1",
        split="test",
        problem_id=f"p{number}",
        prompt="Add two numbers. " * 50,
        data_source="d1",
        ground_truth=_TESTS,
        difficulty="easy",
        sandbox_dataset="",
        sandbox_id="",
        prompt_sha256=sha256("Add two numbers. " * 50),
        extra_info=json.dumps({"tags": ["dp", "graphs"] if number % 3 else ["math"]}),
    )


def _records(chance: random.Random, sample: SampleId) -> tuple[Generation, Verdict]:
    completion = f"answer {chance.random()} " + "x = 1\n" * 300
    names = {
        "dataset": sample.dataset,
        "problem_id": sample.problem_id,
        "sample_index": sample.sample_index,
        "completion_sha256": sha256(completion),
    }
    now = time.time()
    made = Generation(
        **names,
        completion=completion,
        output_tokens=chance.randrange(10, 4000),
        gen_time=chance.expovariate(0.05),
        finished_at=now - 5,
    )
    status = chance.choice(list(FinalStatus)[:-1])
    passed = 20 if status is FinalStatus.SUCCESS else chance.randrange(20)
    judged = Verdict(
        **names,
        final_status=status,
        accepted=passed == 20,
        pass_ratio=passed / 20,
        cases_passed=passed,
        cases_total=20,
        case_codes=[1] * passed + [0] * (20 - passed),
        total_judge_time=chance.expovariate(1),
        method="batch",
        checker="tokens",
        judged_at=now,
    )
    return made, judged


def _ask(address: str, asked: dict[str, list[float]], done: threading.Event) -> None:
    while not done.is_set():
        for path, times in asked.items():
            began = time.monotonic()
            with urllib.request.urlopen(address + path, timeout=30) as answer:
                answer.read()
            times.append(time.monotonic() - began)
            done.wait(0.05)


def wait(address: str, verdicts: int) -> None:
    while True:
        with urllib.request.urlopen(f"{address}/api/runs", timeout=30) as answer:
            runs = json.load(answer)
        if runs.get(RUN, {}).get("verdicts", 0) >= verdicts:
            return
        time.sleep(0.2)


def _memory(process: "subprocess.Popen[bytes]") -> float:
    return float(psutil.Process(process.pid).memory_info().rss / 1e6)


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
