"""`make bench-archive`: what a long run needs of Redis and of its processes' memory.

Runner, aggregator and a stand-in of the judges are processes of their own around a real Redis. The
stand-in gives every completion its verdict at once. Printed are, while samples finish, Redis'
memory and that of runner and aggregator, then Redis' memory of each key with the bytes per finished
sample, and how long a new session takes to see what is done.
"""

import argparse
import asyncio
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import psutil
from redis import Redis

from services.aggregator.__main__ import publish_due
from services.aggregator.index.database import open_database
from services.aggregator.ingest import Ingester
from services.cli.display import ProgressDisplay, stdout_console
from services.runner.run import Run, RunBounds
from services.runner.session import Session, identify
from shared.artifacts import OutputFolder
from shared.config import Config
from shared.ledger import Ledger
from shared.ledger.keys import RunKeys
from shared.plan import RunPlan, make_plan
from shared.run_record import Provenance
from shared.schemas import Generation, Problem, SampleId, Verdict
from tests.bench.finished_folders import finished_records, sample_ids
from tests.conftest import RedisServer
from tests.shared.ledgers import problem

_AT_ONCE = 32
_MARKS = (0.1, 0.2, 0.5, 0.75, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--in-redis", action="store_true", help="archive nothing")
    parser.add_argument("--stop-at", type=float, default=0.95, help="share at which to be killed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder) / "redis")
        try:
            _bench(server, Path(folder), arguments)
        finally:
            server.stop()


def _bench(server: RedisServer, folder: Path, arguments: argparse.Namespace) -> None:
    samples, url = arguments.samples, server.url
    above = sys.maxsize if arguments.in_redis else RunBounds().archived_above
    output = folder / "run"
    spawn = multiprocessing.get_context("spawn")
    others = [
        spawn.Process(target=_judge, args=(url, samples)),
        spawn.Process(target=_aggregate, args=(url, folder)),
    ]
    runner = spawn.Process(target=_run, args=(url, output, samples, above))
    for process in (*others, runner):
        process.start()
    try:
        redis = Redis.from_url(url)
        run = _identity(output, _plan(samples)).run
        watched = {"runner": runner.pid, "aggregator": others[1].pid}
        kill_at = int(arguments.stop_at * samples)
        marks = sorted({*(int(share * samples) for share in _MARKS), 10_000, 50_000, kill_at})
        began = time.monotonic()
        killed = False
        for mark in (one for one in marks if one <= samples):
            _wait_for(redis, run, mark, runner)
            seconds = time.monotonic() - began
            found = {name: _resident(pid) for name, pid in watched.items()}
            used = redis.info("memory")["used_memory"]
            print(
                f"{mark:>9,} judged after {seconds:6.1f} s: Redis {used / 2**20:7.1f} MiB, "
                + ", ".join(f"{name} {size:6.1f} MiB" for name, size in found.items()),
                flush=True,
            )
            if mark == kill_at and not killed:
                killed = True
                runner.kill()
                runner.join()
                redis.delete(RunKeys(run).lock)
                runner = spawn.Process(target=_run, args=(url, output, samples, above))
                runner.start()
                watched["runner"] = runner.pid
        runner.join()
        print(f"published after {time.monotonic() - began:.1f} s")
        print(f"aggregator {_peak(others[1].pid):.1f} MiB at its highest")
        _print_keys(redis, run, samples)
    finally:
        for process in (*others, runner):
            process.kill()
            process.join()


def _print_keys(redis: Redis, run: str, samples: int) -> None:
    total = 0
    for key in sorted(redis.scan_iter(f"plumbline:run:{run}:*")):
        size = redis.memory_usage(key, samples=0)
        total += size
        print(f"{key.decode().rsplit(':', 1)[1]:>14} {size:>14,} bytes {size / samples:>9.1f} each")
    print(f"{total / samples:.0f} bytes of Redis per finished sample (MEMORY USAGE of all keys)")


def _wait_for(redis: Redis, run: str, judged: int, runner: object) -> None:
    while redis.hlen(RunKeys(run).verdicts) < judged:
        time.sleep(0.02)


def _resident(pid: int) -> float:
    return psutil.Process(pid).memory_info().rss / 2**20


def _peak(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


# The processes


def _problems(samples: int) -> list[Problem]:
    of = dict.fromkeys((one.dataset, one.problem_id) for one in sample_ids(samples))
    return [problem(name, dataset) for dataset, name in of]


def _plan(samples: int) -> RunPlan:
    indices: dict[tuple[str, str], list[int]] = {}
    for one in sample_ids(samples):
        indices.setdefault((one.dataset, one.problem_id), []).append(one.sample_index)
    return make_plan(_problems(samples), lambda p: indices[p.dataset, p.problem_id])


def _identity(output: Path, plan: RunPlan):
    return identify(Config(), plan, OutputFolder(str(output)), "")


def _run(url: str, output: Path, samples: int, above: int) -> None:
    async def source(owed: list[SampleId]) -> AsyncGenerator[list[Generation]]:
        wanted, batch = set(owed), []
        for made, _ in finished_records(samples, random.Random(0), 1.7e9):
            if made.sample in wanted:
                wanted.discard(made.sample)
                batch.append(made)
            if len(batch) == _AT_ONCE:
                yield batch
                batch = []
            await asyncio.sleep(0)
        if batch:
            yield batch

    plan = _plan(samples)
    folder = OutputFolder(str(output))
    redis = Redis.from_url(url)
    session = Session(redis, _identity(output, plan))
    before = redis.hlen(RunKeys(session.ledger.run).verdicts)
    began = time.monotonic()
    session.enter(Config(), _problems(samples), folder, force=False, provenance=Provenance())
    with ProgressDisplay(stdout_console()) as progress:
        progress.planned(plan)
        run = Run(
            *(Config(), plan, session, source, progress), bounds=RunBounds(archived_above=above)
        )
        reconcile = run._reconcile

        def timed() -> list[SampleId]:
            entered = time.monotonic() - began
            found = reconcile()
            seconds = time.monotonic() - began
            if before:
                print(
                    f"resumed with {before:,} judged: {entered:.1f} s to enter the session, "
                    f"{seconds - entered:.1f} s to compare plan and ledger",
                    flush=True,
                )
            return found

        run._reconcile = timed  # type: ignore[method-assign]
        asyncio.run(run.complete())


def _judge(url: str, samples: int) -> None:
    """Give every job's completion a verdict of realistic size."""
    redis = Redis.from_url(url)
    templates = [one for _, one in finished_records(200, random.Random(1), 1.7e9)]
    runs: dict[str, Ledger] = {}
    chosen = Counter[str]()
    while True:
        jobs = redis.lpop("rq:queue:judge", 100) or []
        if not jobs:
            time.sleep(0.005)
            continue
        pipe = redis.pipeline(transaction=False)
        for job in jobs:
            pipe.hget(b"rq:job:" + job, "description")
        names = pipe.execute()
        for member in redis.smembers("plumbline:runs"):
            runs.setdefault(member.decode(), Ledger(redis, member.decode()))
        (ledger,) = runs.values()
        hashes = redis.hmget(RunKeys(ledger.run).hashes, names)
        for name, sha in zip(names, hashes, strict=True):
            sample = SampleId.parse(name.decode())
            chosen["all"] += 1
            ledger.record_verdict(_verdict(templates, chosen["all"], sample, sha.decode()))
        redis.delete(*(b"rq:job:" + job for job in jobs))


def _verdict(templates: list[Verdict], number: int, sample: SampleId, sha: str) -> Verdict:
    names = {
        "dataset": sample.dataset,
        "problem_id": sample.problem_id,
        "sample_index": sample.sample_index,
        "completion_sha256": sha,
    }
    return templates[number % len(templates)].model_copy(update=names)


def _aggregate(url: str, folder: Path) -> None:
    ingester = Ingester(Redis.from_url(url), open_database(folder / "index"))
    while True:
        if not ingester.catch_up() and not publish_due(ingester):
            time.sleep(0.1)


if __name__ == "__main__":
    main()
