"""`make bench-million`: very many recorded completions through the real stack.

Runner, Redis, queue, ledger, judges and aggregator are real, each a process of its own; the sandbox
is a stand-in that answers at once. Printed are samples per second by phase, CPU time per sample of
each service, what Redis does and holds for a sample, memory over time, the latency of page and API,
and with ``--kill-at`` the seconds until a runner that was killed is at work again. ``--out`` gets
every observation as JSON lines, and the memory over time as a picture.

The floors are from the same run: what a pipelined command costs the same Redis, and the bytes of a
sample in the artifacts.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import Any

import psutil
from redis import Redis

from services.data.records import write_dataset
from shared.schemas import StdioTests
from tests.bench.chart import write_line_chart
from tests.bench.instant_sandbox import OUTPUT, instant_sandbox
from tests.conftest import RedisServer
from tests.e2e import plumb
from tests.e2e.reward import stdio_problem

DATASET = "million"
_SOLUTION = "```python\nprint(sum(map(int, input().split())))\n```\n"
_FLOOR_COMMANDS = 50_000
_FLOOR_PIPELINE = 100
_PAGES = (
    "/api/runs",
    "/api/runs/{run}",
    "/api/runs/{run}/samples?sort=judged_at&order=desc&limit=100",
    "/api/runs/{run}/samples?status=success&limit=100",
    "/",
    "/metrics",
)


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """CPU seconds since it started, and resident bytes, of the processes of one service."""

    cpu: float
    resident: int


@dataclass(frozen=True, slots=True)
class Observation:
    """The stack at one moment.

    Attributes:
        at: Seconds since the first command began.
        completions: Completions that were written so far.
        verdicts: Verdicts that were written so far.
        queued: Jobs that wait.
        redis_bytes: Redis' ``used_memory``.
        active: The run's active seconds, which grow while a runner is at work.
        services: By name; the judges are one.
    """

    at: float
    completions: int
    verdicts: int
    queued: int
    redis_bytes: int
    active: float
    services: Mapping[str, ProcessUse]


@dataclass
class Stack:
    """The processes by the name of their service; the runner joins them when it starts."""

    url: str
    page: str
    folder: Path
    processes: dict[str, list[int]] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--n", type=int, default=64, help="completions per problem")
    parser.add_argument("--chars", type=int, default=600, help="characters of a completion")
    parser.add_argument("--judges", type=int, default=2, help="judge processes")
    parser.add_argument("--concurrency", type=int, default=16, help="completions a judge at once")
    parser.add_argument("--kill-at", type=float, help="share of the verdicts; kill the runner then")
    parser.add_argument("--seconds", type=float, help="stop the run after so long")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between observations")
    parser.add_argument("--out", type=Path, help="folder for the observations and the picture")
    arguments = parser.parse_args()
    out = arguments.out
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        _bench(arguments, Path(folder), out)


def _bench(arguments: argparse.Namespace, folder: Path, out: Path | None) -> None:
    data, completions = _inputs(folder, arguments)
    line_bytes = completions.stat().st_size / arguments.samples
    print(
        f"{arguments.samples} completions of {arguments.chars} characters, n = {arguments.n}, "
        f"{arguments.judges} judges of {arguments.concurrency}, {os.cpu_count()} cores"
    )
    with _stack(arguments, folder) as stack, Redis.from_url(stack.url) as redis:
        floor = _floor(redis)
        redis.flushall()
        redis.config_resetstat()
        output = folder / "out"
        command = plumb.command("judge", "--data", str(data), "--completions", str(completions))
        command += ["--output", str(output), "judge.canaries.enabled=false"]
        command += ["sandbox.max_concurrency=64"]
        watch = Watch(stack, redis, arguments.every)
        latencies: dict[str, list[float]] = {}
        with watch.running(), _asking(stack, redis, latencies):
            resumed = _run(arguments, command, stack, watch)
        stats = redis.info("commandstats")
        used = redis.info("cpu")
    first, seen = watch.seen[0], watch.seen
    record = json.loads((output / "run.json").read_text())
    print(f"state: {record['state']}, load {os.getloadavg()[0]:.1f}")
    _print_phases(seen, watch.ended)
    _print_cpu(first, seen)
    _print_redis(seen, stats, used, floor, output, line_bytes)
    _print_memory(seen)
    for path, times in latencies.items():
        _print_latency(path, times)
    _print_latency("all pages", [one for times in latencies.values() for one in times])
    if resumed is not None:
        print(f"a killed runner's work went on {resumed:.1f} s after its next command began")
    if out is not None:
        _write(out, seen)


def _inputs(folder: Path, arguments: argparse.Namespace) -> tuple[Path, Path]:
    """A data set, and a file with completions that all differ."""
    tests = StdioTests(inputs=["1 2\n"], outputs=[OUTPUT])
    count = -(-arguments.samples // arguments.n)
    problems = [stdio_problem(f"problem_{place}", tests, DATASET) for place in range(count)]
    write_dataset(str(folder / f"{DATASET}.parquet"), problems)
    chance = Random(0)
    # Half of the text is random, so that it compresses about as text does.
    words = [f"{chance.getrandbits(32):08x} then " for _ in range(4096)]
    with (folder / "completions.jsonl").open("w") as file:
        for number in range(arguments.samples):
            place, index = divmod(number, arguments.n)
            head = f"Answer {index} of {place}: "
            left = max(0, arguments.chars - len(head) - len(_SOLUTION))
            thought = "".join(chance.choices(words, k=left // 14))
            line = {
                "problem_id": problems[place].problem_id,
                "sample_index": index,
                "completion": f"{head}{thought}\n{_SOLUTION}",
            }
            file.write(json.dumps(line) + "\n")
    return folder / f"{DATASET}.parquet", folder / "completions.jsonl"


# The stack


@contextmanager
def _stack(arguments: argparse.Namespace, folder: Path) -> Iterator[Stack]:
    with ExitStack() as stack:
        sandbox = stack.enter_context(instant_sandbox())
        server = RedisServer(folder / "redis")
        stack.callback(server.stop)
        (folder / "logs").mkdir()
        settings = {"REDIS_URL": server.url, "PORT": "0", "HOST": "127.0.0.1"}
        of_judge = {
            "SANDBOX_URLS": sandbox,
            "PLUMBLINE_JUDGE_CONCURRENCY": str(arguments.concurrency),
        }
        judges = []
        for number in range(arguments.judges):
            started = _service(folder, f"judge-{number}", settings | of_judge)
            judges.append(stack.enter_context(started).pid)
        port = folder / "port"
        of_page = {"PLUMBLINE_PORT_FILE": str(port), "PLUMBLINE_INDEX_DIR": str(folder / "index")}
        aggregator = stack.enter_context(_service(folder, "aggregator", settings | of_page))
        while not port.exists():
            assert aggregator.poll() is None, f"the aggregator ended with {aggregator.returncode}"
            time.sleep(0.05)
        page = f"http://127.0.0.1:{port.read_text().strip()}"
        assert server.child.process is not None
        yield Stack(
            server.url,
            page,
            folder,
            {
                "redis": [server.child.process.pid],
                "judges": judges,
                "aggregator": [aggregator.pid],
                "stand-in": [plumb.child(os.getpid(), "tests.bench.instant_sandbox").pid],
            },
        )


@contextmanager
def _service(
    folder: Path, name: str, settings: dict[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    module = f"services.{name.partition('-')[0]}"
    with (folder / "logs" / name).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module], env=os.environ | settings, stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def _run(
    arguments: argparse.Namespace, command: Sequence[str], stack: Stack, watch: "Watch"
) -> float | None:
    """Run the command to its end, killed once if that is asked for.

    Returns:
        Seconds from the next command's start until a runner is at work again; None without a kill.
    """
    give_up = time.monotonic() + arguments.seconds if arguments.seconds else None

    def late() -> bool:
        return give_up is not None and time.monotonic() > give_up

    process = _runner(command, stack)
    resumed = None
    if arguments.kill_at:
        wanted = arguments.kill_at * arguments.samples
        while process.poll() is None and not late() and watch.seen[-1].verdicts < wanted:
            time.sleep(0.05)
        process.kill()
        process.wait()
        time.sleep(arguments.every)  # the latest observation is one after the kill
        before, began = watch.look().active, time.monotonic()
        process = _runner(command, stack)
        while process.poll() is None and not late() and watch.look().active <= before:
            time.sleep(0.2)
        resumed = time.monotonic() - began
    while process.poll() is None and not late():
        time.sleep(0.05)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait()
    elif process.returncode:
        raise RuntimeError((stack.folder / "logs" / "runner").read_text()[-2000:])
    watch.ended = time.monotonic() - watch.began
    return resumed


def _runner(command: Sequence[str], stack: Stack) -> "subprocess.Popen[bytes]":
    with (stack.folder / "logs" / "runner").open("ab") as log:
        process = subprocess.Popen(
            command,
            env=plumb.environment() | {"REDIS_URL": stack.url, "PLUMBLINE_SANDBOX_CHECK": "none"},
            stdout=log,
            stderr=log,
        )
    stack.processes["runner"] = [*stack.processes.get("runner", ()), process.pid]
    return process


# Observation


class Watch:
    """Looks at all processes and at Redis at regular times."""

    def __init__(self, stack: Stack, redis: "Redis", every: float) -> None:
        self.began = time.monotonic()
        self.ended = 0.0
        self.seen: list[Observation] = []
        self._stack = stack
        self._redis = redis
        self._every = every
        self._cpu: dict[int, float] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        self.seen.append(self.look())
        with _beside(self._repeat):
            yield
        self.seen.append(self.look())

    def _repeat(self, done: threading.Event) -> None:
        while not done.wait(self._every):
            self.seen.append(self.look())

    def look(self) -> Observation:
        runs = run_ids(self._redis)
        counted: list[Any] = [None] * 3
        if runs:
            meta = f"plumbline:run:{runs[0]}:meta"
            names = ["completions_written", "verdicts_written", "active_seconds"]
            counted = self._redis.hmget(meta, names)
        return Observation(
            at=time.monotonic() - self.began,
            completions=int(counted[0] or 0),
            verdicts=int(counted[1] or 0),
            queued=self._redis.llen("rq:queue:judge"),
            redis_bytes=self._redis.info("memory")["used_memory"],
            active=float(counted[2] or 0),
            services={name: self._use(pids) for name, pids in self._stack.processes.items()},
        )

    def _use(self, pids: Sequence[int]) -> ProcessUse:
        resident = 0
        for pid in pids:
            try:
                process = psutil.Process(pid)
                times = process.cpu_times()
                resident += process.memory_info().rss
            except psutil.NoSuchProcess:  # its last time counts
                continue
            self._cpu[pid] = times.user + times.system
        return ProcessUse(sum(self._cpu.get(pid, 0.0) for pid in pids), resident)


def run_ids(redis: "Redis") -> list[str]:
    return sorted(run.decode() for run in redis.smembers("plumbline:runs"))


@contextmanager
def _asking(stack: Stack, redis: "Redis", latencies: dict[str, list[float]]) -> Iterator[None]:
    """Ask for pages of the run, one after the other, until the block ends."""

    def ask(done: threading.Event) -> None:
        while not done.wait(0.2):
            runs = run_ids(redis)
            for path in _PAGES if runs else ():
                began = time.monotonic()
                try:
                    url = stack.page + path.format(run=runs[0])
                    with urllib.request.urlopen(url, timeout=60) as answer:
                        answer.read()
                except OSError as error:
                    print(f"{path}: {error}")
                latencies.setdefault(path, []).append(time.monotonic() - began)
                if done.wait(0.2):
                    return

    with _beside(ask):
        yield


@contextmanager
def _beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run ``work`` in a thread beside the block; the event tells it to end."""
    done = threading.Event()
    thread = threading.Thread(target=work, args=[done])
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _floor(redis: "Redis") -> float:
    """Seconds of Redis' CPU for one small command in a pipeline."""
    pipe = redis.pipeline(transaction=False)
    before = _cpu_of(redis.info("cpu"))
    for number in range(_FLOOR_COMMANDS):
        pipe.hset("bench:floor", f"field-{number % 1000}", "x" * 100)
        if len(pipe) == _FLOOR_PIPELINE:
            pipe.execute()
    pipe.execute()
    return (_cpu_of(redis.info("cpu")) - before) / _FLOOR_COMMANDS


def _cpu_of(info: Mapping[str, Any]) -> float:
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


# Results


def _print_phases(seen: Sequence[Observation], ended: float) -> None:
    first = next((one.at for one in seen if one.completions), ended)
    written = next((one.at for one in seen if one.completions == seen[-1].completions), ended)
    judged = next((one.at for one in seen if one.verdicts == seen[-1].verdicts), ended)
    verdicts = seen[-1].verdicts
    print(f"{verdicts} verdicts")
    print(f"  reading the inputs and starting: {first:.1f} s")
    print(f"  first to last completion written: {written - first:.1f} s")
    if judged > first:
        rate = verdicts / (judged - first)
        print(f"  first completion to last verdict: {judged - first:.1f} s, {rate:.0f} samples/s")
    print(f"  last verdict to the command's end: {ended - judged:.1f} s")
    if ended > first:
        rate = verdicts / (ended - first)
        print(f"  first sample to published artifacts: {ended - first:.1f} s, {rate:.0f} samples/s")


def _print_cpu(first: Observation, seen: Sequence[Observation]) -> None:
    last, count = seen[-1], max(1, seen[-1].verdicts)
    used = {
        name: 1000 * (use.cpu - (first.services[name].cpu if name in first.services else 0)) / count
        for name, use in last.services.items()
    }
    ours = sum(value for name, value in used.items() if name != "stand-in")
    shown = ", ".join(f"{name} {value:.2f}" for name, value in used.items())
    print(f"CPU per sample: {ours:.2f} ms without the stand-in ({shown})")


def _print_redis(
    seen: Sequence[Observation],
    stats: Mapping[str, Mapping[str, float]],
    used: Mapping[str, Any],
    floor: float,
    output: Path,
    line_bytes: float,
) -> None:
    count = max(1, seen[-1].verdicts)
    cpu = seen[-1].services["redis"].cpu - seen[0].services["redis"].cpu
    print(
        f"Redis: {1000 * cpu / count:.3f} ms of CPU per sample, {count / cpu:.0f} samples per "
        f"second of it; a pipelined HSET {1e6 * floor:.1f} us, {1 / floor:.0f} a second"
    )
    top = sorted(stats.items(), key=lambda one: -one[1]["usec"])[:10]
    for name, one in top:
        name = name.removeprefix("cmdstat_")
        each = one["usec"] / count
        print(f"  {name}: {one['calls'] / count:.2f} calls, {each:.1f} us per sample")
    most = max(one.redis_bytes for one in seen)
    base = seen[0].redis_bytes
    files = sum(file.stat().st_size for file in output.glob("*.jsonl"))
    print(
        f"  memory per sample: {(seen[-1].redis_bytes - base) / count:.0f} bytes at the end, "
        f"{(most - base) / count:.0f} at most; the recorded line has {line_bytes:.0f}, "
        f"the artifacts {files / count:.0f}"
    )


def _print_memory(seen: Sequence[Observation]) -> None:
    total = max(1, seen[-1].verdicts)
    shares = (0.1, 0.25, 0.5, 0.75, 1.0)
    at = [next(one for one in seen if one.verdicts >= share * total) for share in shares]
    at.append(seen[-2])
    for name in seen[-1].services:
        values = [one.services[name].resident / 1e6 if name in one.services else 0 for one in at]
        most = max(one.services[name].resident / 1e6 for one in seen if name in one.services)
        shown = ", ".join(f"{value:.0f}" for value in values)
        print(f"  {name}: {shown} MB at 10, 25, 50, 75, 100 % and the end; {most:.0f} at most")


def _print_latency(path: str, times: Sequence[float]) -> None:
    if len(times) < 2:
        return
    cuts = quantiles(times, n=100, method="inclusive")
    print(
        f"{path}: {len(times)} answers, p50 {cuts[49] * 1000:.0f} ms, p95 {cuts[94] * 1000:.0f} ms"
    )


def _write(out: Path, seen: Sequence[Observation]) -> None:
    with (out / "million.jsonl").open("w") as file:
        for one in seen:
            file.write(json.dumps(asdict(one)) + "\n")
    names = [name for name in seen[-1].services if name != "stand-in"]
    lines = {
        name: [(one.at, one.services[name].resident / 1e6) for one in seen if name in one.services]
        for name in names
    }
    lines["redis, used_memory"] = [(one.at, one.redis_bytes / 1e6) for one in seen]
    title = f"Resident memory while {seen[-1].verdicts:,} samples are judged"
    write_line_chart(out / "million.svg", title, "seconds", "MB", lines)


if __name__ == "__main__":
    main()
