"""`make bench-redis`: what one Redis carries, step by step in the life of a completion.

One client does what runner, judge and aggregator do with the ledger, so many completions at once,
on a Redis of its own with an append-only file. The CPU time of Redis' process is read after each
step. The floor is the same number of bytes of a completion and its verdict, written by
plain HSETs in pipelines. The client waits while Redis works, so the machine's other work changes
the figures less than those of a whole stack.
"""

import argparse
import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from services.judge.permits import CallOutcome, PoolSettings, SandboxPool
from shared.ledger import Ledger, connect_async
from shared.ledger.jobs import JobInput, TakenJob, WorkerJobs
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.queue import JobCall
from shared.ledger.streams import read_stream
from shared.plan import make_plan
from shared.schemas import Generation, SampleId, StdioTests, sha256
from tests.conftest import RedisServer
from tests.e2e.reward import stdio_problem
from tests.shared.ledgers import enter, verdict

_RUN, _DATASET = "bench", "d"
_RECORDED_AT_ONCE = 32  # as the runner's source of recorded completions
_N = 64


class Meter:
    """CPU seconds of a process by step, with all its threads; asking costs the process nothing."""

    def __init__(self, pid: int) -> None:
        self.cpu: Counter[str] = Counter()
        self._threads = Path(f"/proc/{pid}/task")

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        before = self._now()
        yield
        self.cpu[name] += self._now() - before

    def _now(self) -> float:
        each = [(one / "schedstat").read_text().split()[0] for one in self._threads.iterdir()]
        return sum(map(int, each)) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=6400)
    parser.add_argument("--at-once", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--chars", type=int, default=600, help="characters of a completion")
    arguments = parser.parse_args()
    print(f"{arguments.samples} completions, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for at_once in arguments.at_once:
        with tempfile.TemporaryDirectory() as folder:
            server = RedisServer(Path(folder))
            try:
                asyncio.run(_measure(server, arguments.samples, at_once, arguments.chars))
            finally:
                server.stop()


async def _measure(server: RedisServer, samples: int, at_once: int, chars: int) -> None:
    redis = Redis.from_url(server.url)
    assert server.child.process is not None
    meter = Meter(server.child.process.pid)
    generations = _generations(samples, chars)
    floor = _floor(redis, meter, generations)
    redis.flushall()
    ledger = Ledger(redis, _RUN)
    tests = StdioTests(inputs=["1 2\n"], outputs=["3\n"])
    count = -(-samples // _N)
    problems = [stdio_problem(f"p{number}", tests, _DATASET) for number in range(count)]
    enter(ledger, problems, make_plan(problems, lambda _problem: range(_N)))
    with meter.step("add completion and job"):
        for start in range(0, samples, _RECORDED_AT_ONCE):
            ledger.record_all(
                [(one, None) for one in generations[start : start + _RECORDED_AT_ONCE]]
            )
    client = await connect_async(server.url)
    commands = PipelinedRedis(client)
    judge = _Judge(client, commands, meter, at_once)
    done = 0
    while done < samples:
        done += await judge.turn()
    with meter.step("runner reads events"):
        after = "0"
        while events := ledger.events(after):
            after = events[-1].entry
    with meter.step("aggregator reads events and verdicts"):
        _index(redis, ledger)
    await judge.close()
    await client.aclose()
    _print(meter, samples, at_once, floor)


def _generations(samples: int, chars: int) -> list[Generation]:
    found = []
    for number in range(samples):
        place, index = divmod(number, _N)
        noise = "".join(sha256(f"{number} {part}") for part in range(1 + chars // 128))
        text = (f"Answer {number}. " + noise + "x = 1\n" * (chars // 12))[:chars]
        sample = SampleId(_DATASET, f"p{place}", index)
        found.append(
            Generation(
                dataset=sample.dataset,
                problem_id=sample.problem_id,
                sample_index=sample.sample_index,
                completion=text,
                completion_sha256=sha256(text),
            )
        )
    return found


def _floor(redis: "Redis", meter: Meter, generations: Sequence[Generation]) -> float:
    """CPU seconds of writing the same documents with plain commands."""
    pipe = redis.pipeline(transaction=False)
    with meter.step("floor"):
        for one in generations:
            pipe.hset("floor:completions", one.sample.key, one.model_dump_json())
            pipe.hset("floor:verdicts", one.sample.key, verdict(one).model_dump_json())
            if len(pipe) >= 2 * _RECORDED_AT_ONCE:
                pipe.execute()
        pipe.execute()
    return meter.cpu.pop("floor")


def _index(redis: "Redis", ledger: Ledger) -> None:
    position = "0"
    while entries := read_stream(redis, _RUN, position):
        samples = [one.event.sample for one in entries if one.event is not None]
        assert len(list(ledger.verdicts(samples))) == len(samples)
        assert len(list(ledger.completions(samples))) == len(samples)
        position = entries[-1].id


class _Judge:
    """A worker that judges without a sandbox, one step after the other for all in hand."""

    def __init__(self, client, commands: PipelinedRedis, meter: Meter, at_once: int) -> None:
        self._jobs = WorkerJobs(commands, "judge-bench", lease_ttl=10)
        self._meter = meter
        self._at_once = at_once
        settings = PoolSettings(max_concurrency=at_once, initial=at_once)
        urls = ["http://127.0.0.1:1"]
        self._pool = SandboxPool(client, urls, "judge-bench", settings=settings, commands=commands)

    async def turn(self) -> int:
        step = self._meter.step
        with step("take jobs with leases"):
            taken = (await self._jobs.take(self._at_once, idle=False)).jobs
        calls = [JobCall.parse(job.data) for job in taken]
        new = {call.sample.problem_id for call in calls if call.sample.sample_index == 0}
        with step("read completion, config, problem"):
            found = await _all(
                self._jobs.read(call, problem=call.sample.problem_id in new) for call in calls
            )
        managers = [self._pool.permit() for _ in calls]
        with step("take permits"):
            permits = await _all(manager.__aenter__() for manager in managers)
        for permit in permits:
            permit.report(CallOutcome.OK)
        with step("return permits"):
            await _all(manager.__aexit__(None, None, None) for manager in managers)
        with step("write verdict, finish job"):
            written = await _all(
                self._finish(job, call, one)
                for job, call, one in zip(taken, calls, found, strict=True)
            )
        assert all(written)
        return len(taken)

    def _finish(self, job: TakenJob, call: JobCall, found: JobInput) -> Awaitable[bool]:
        assert found.completion is not None
        return self._jobs.finish(job, call, verdict(found.completion), 0.1)

    async def close(self) -> None:
        await self._pool.close()


async def _all(work):
    return await asyncio.gather(*work)


def _print(meter: Meter, samples: int, at_once: int, floor: float) -> None:
    total = sum(meter.cpu.values())
    print(
        f"{at_once} at once: {1e6 * total / samples:.0f} us of Redis' CPU per completion, "
        f"{samples / total:.0f} completions per second of it; the documents alone "
        f"{1e6 * floor / samples:.0f} us"
    )
    for name, seconds in meter.cpu.items():
        print(f"  {name}: {1e6 * seconds / samples:.1f} us")


if __name__ == "__main__":
    main()
