"""`make endurance`: hours of reward traffic with faults, and what the stack holds at the end.

Starts `plumb reward --embedded` twice: undisturbed, to learn the rewards, then for the run. All
requests go over loopback. Writes `samples.jsonl`, `events.jsonl`, `result.md` and `memory.svg`
into a folder, prints the result, and ends with exit code 1 if anything was found.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import aiohttp
import psutil
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis
from redis.exceptions import RedisError

from tests.chaos.faults import adopt_orphans, alive
from tests.e2e.plumb import DEMO
from tests.e2e.reward import RewardService, reward_service
from tests.endurance import report
from tests.endurance.answers import answers
from tests.endurance.connections import CuttableProxy
from tests.endurance.faults import Injector
from tests.endurance.processes import processes, redis_url
from tests.endurance.samples import Sample, Stack, growth, redis_growth
from tests.endurance.schedule import schedule
from tests.endurance.traffic import Tally, Traffic

# Seconds in which a stack without requests lets go of everything, and its processes end.
_QUIET, _LEAVE = 120.0, 20.0
# Folders of temporary files that all sandboxes of a user share, and keep.
_SHARED = ("plumbline-modules-*", "plumbline-root-*")
# Growth over the whole run that is taken for none: MB, and part of what there was.
_FLAT = 6.0, 0.05
# Keys that exist only while something is in flight, by the beginnings of their kinds.
_IN_FLIGHT = ("plumbline:lease:", "rq:job:", "rq:execution:", "rq:queue:")
_HASHES_IN_FLIGHT = ("completions", "hashes", "verdicts", "uses", "deliveries")


def main() -> int:
    options = _options()
    adopt_orphans()
    # As Ctrl-C, so that the stack is stopped too; in the background that is ignored at first.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(options, folder)
    try:
        asyncio.run(run.run())
    finally:
        run.close()
        for left in alive():
            with suppress(psutil.NoSuchProcess):
                left.kill()
    print(run.result, flush=True)
    return 1 if run.findings else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make endurance ARGS=…", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=1.0, help="requests a second (%(default)g)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault-every", type=float, default=25.0, metavar="S")
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--sample-every", type=float, default=10.0, metavar="S")
    parser.add_argument("--out", default="outputs/endurance", help="folder of the result")
    return parser.parse_args()


class Run:
    """One run, with its findings."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.findings: list[tuple[str, str]] = []
        self.result = ""
        self._options, self._folder = options, folder
        self._events = (folder / "events.jsonl").open("w")
        self._lines = (folder / "samples.jsonl").open("w")
        self._samples: list[Sample] = []
        self._began = time.monotonic()

    def close(self) -> None:
        self._events.close()
        self._lines.close()

    async def run(self) -> None:
        seconds = 60 * self._options.minutes
        remember = max(10.0, min(300.0, seconds / 10))
        with tempfile.TemporaryDirectory(prefix="endurance-") as place:
            for part in ("undisturbed", "tmp"):
                Path(place, part).mkdir()
                Path(place, part).chmod(0o1777)
            Path(place).chmod(0o755)  # programs of other users have their folders below it
            learned = await self._learn(Path(place, "undisturbed"))
            temporary = Path(place, "tmp")
            with ExitStack() as stack:
                service = stack.enter_context(
                    _service(temporary, PLUMBLINE_REWARD_REMEMBER=str(remember))
                )
                url = await asyncio.to_thread(redis_url, service.process.pid)
                redis = stack.enter_context(Redis.from_url(url, socket_timeout=10))
                measured = Stack(service.process.pid, redis, temporary, service.folder)
                await self._disturbed(service, measured, learned, seconds)
            self._check_end(service, temporary)

    async def _learn(self, temporary: Path) -> Traffic:
        with _service(temporary) as service:
            async with (
                CuttableProxy(service.url).serving() as proxy,
                self._traffic(proxy) as traffic,
            ):
                await traffic.learn()
                self._note(f"learned {len(traffic.expected)} answers")
        return traffic

    def _traffic(self, proxy: CuttableProxy) -> Traffic:
        return Traffic(proxy, answers(), Random(self._options.seed), self._found)

    async def _disturbed(
        self, service: RewardService, stack: Stack, learned: Traffic, seconds: float
    ) -> None:
        command = service.process.pid
        async with CuttableProxy(service.url).serving() as proxy:
            async with self._traffic(proxy) as traffic:
                traffic.expected, traffic.programs = learned.expected, learned.programs
                await _until_ready(stack)
                # What only the first requests cost belongs to no run.
                await traffic.run(min(20.0, seconds / 6), self._options.rate)
                self._note("warm")
                traffic.tally = Tally()
                before = await _metrics(proxy)
                await self._until_quiet(stack)
                spared = processes("judge", command)[-1].pid
                steady = {
                    "command": command,
                    "reward service": processes("reward", command)[0].pid,
                    "judge that is not killed": spared,
                }
                self._began = time.monotonic()
                await self._sample(stack, traffic)
                injector = Injector(command, spared, proxy, stack.redis, self._note)
                drawn = schedule(self._options.seed, seconds, self._options.fault_every)
                faults = [] if self._options.no_faults else drawn
                sampling = asyncio.create_task(self._sample_forever(stack, traffic))
                try:
                    await asyncio.gather(
                        traffic.run(seconds, self._options.rate),
                        injector.run(faults, self._began),
                    )
                finally:
                    sampling.cancel()
            await self._until_quiet(stack)
            await self._sample(stack, traffic)
            after = await _metrics(proxy)
        self._check_counters(traffic.tally, before, after, stack.redis)
        self._check_held(steady)
        self._tell(traffic.tally, injector, steady)

    # Samples

    async def _sample(self, stack: Stack, traffic: Traffic) -> None:
        sample = await asyncio.to_thread(stack.sample, self._began, traffic.open)
        self._samples.append(sample)
        print(json.dumps(sample.document()), file=self._lines, flush=True)

    async def _sample_forever(self, stack: Stack, traffic: Traffic) -> None:
        while True:
            await asyncio.sleep(self._options.sample_every)
            await self._sample(stack, traffic)

    async def _until_quiet(self, stack: Stack) -> None:
        """Wait until nothing is in flight, and what the service records is recorded."""
        ends = time.monotonic() + _QUIET
        await asyncio.sleep(12)
        while time.monotonic() < ends and await asyncio.to_thread(_is_busy, stack.redis):
            await asyncio.sleep(1)
        self._note("quiet")

    # Checks

    def _check_held(self, steady: dict[str, int]) -> None:
        first, last = self._samples[0], self._samples[-1]
        living = {one.pid for one in last.processes}
        for name, pid in steady.items():
            if pid not in living:
                self._found("what was not killed lives", name)
                continue
            # Connections are opened as they are needed and kept: the most of the first tenth count.
            early = [
                one
                for sample in self._samples
                for one in sample.processes
                if one.pid == pid and sample.at <= last.at / 10
            ]
            after = next(one for one in last.processes if one.pid == pid)
            for part, more in (("descriptors", 8), ("threads", 8), ("children", 0)):
                most, new = max(getattr(one, part) for one in early), getattr(after, part)
                if new > most + more:
                    text = f"{name}: at most {most} in the first tenth, {new} at the end"
                    self._found(f"no {part} are left over", text)
            self._check_flat(name, *growth(self._samples, pid))
        self._check_flat("data of Redis", *redis_growth(self._samples))
        # A slot that was killed is replaced when it is needed.
        counts = [
            {one.name: len(sample.of(one.name)) for one in sample.processes if one.name != "slot"}
            for sample in (first, last)
        ]
        if counts[0] != counts[1]:
            self._found("no process is left over or missing", f"{counts[0]}, then {counts[1]}")

    def _check_flat(self, name: str, rate: float, median: float) -> None:
        grown = rate * self._samples[-1].at / 3600
        most, part = _FLAT
        if grown > max(most, part * median):
            self._found("memory is flat", f"{name}: {rate:.2f} MB/h, at {median:.0f} MB")

    def _check_counters(
        self, tally: Tally, before: "Metrics", after: "Metrics", redis: Redis
    ) -> None:
        for route in {route for route, _ in tally.responses} & after.routes:
            codes = {code for counted, code in after.requests if counted == route}
            sent = {code for asked, code in tally.responses if asked == route}
            broken = tally.broken[route]
            for code in codes | sent - {405, 499}:  # no route counts a wrong method
                counted = after.requests.get((route, code), 0) - before.requests.get(
                    (route, code), 0
                )
                seen = tally.responses[route, code]
                if not seen <= counted <= seen + broken:
                    text = f"{route} {code}: {counted}, seen were {seen}, broken {broken}"
                    self._found("requests are counted as they were answered", text)
        for what, left, right in (
            ("results are scores and unjudged", after.results, after.scores + after.unjudged),
            ("scores are judged and remembered", after.scores, after.judged + after.remembered),
            ("nothing is pending", after.pending, 0),
        ):
            if left != right:
                self._found(f"counters agree: {what}", f"{left:g}, {right:g}")
        for one in in_flight(redis):
            self._found("nothing is held in Redis", one)

    def _check_end(self, service: RewardService, temporary: Path) -> None:
        if service.process.returncode != 0:
            self._found("SIGTERM ends it well", f"exit code {service.process.returncode}")
        ends = time.monotonic() + _LEAVE
        while (left := alive()) and time.monotonic() < ends:
            time.sleep(0.1)
        for process in left:
            with suppress(psutil.Error):
                self._found("no process is left", " ".join(process.cmdline())[:200])
        for path in sorted(temporary.iterdir()):
            if not any(map(path.match, _SHARED)):
                self._found("no temporary file is left", path.name)
        verdict = [f"- {what}: {seen}" for what, seen in self.findings[:50]]
        self.result = "\n".join([self.result, "", *(verdict or ["Nothing was found."])])
        (self._folder / "result.md").write_text(self.result + "\n")

    def _tell(self, tally: Tally, injector: Injector, steady: dict[str, int]) -> None:
        text = report.summary(
            self._samples, tally, injector.made, self.findings, self._options.seed
        )
        self.result = f"{text}\n\n{report.table(self._samples, steady)}"
        (self._folder / "memory.svg").write_text(report.picture(self._samples))

    def _found(self, what: str, seen: str) -> None:
        self.findings.append((what, seen))
        self._note(f"FOUND not true that {what}: {seen}")

    def _note(self, text: str) -> None:
        event = {"at": round(time.monotonic() - self._began, 2), "event": text}
        print(json.dumps(event), file=self._events, flush=True)


def _service(temporary: Path, **environment: str):
    return reward_service(
        DEMO / "data",
        "judge.workers=2",
        "sandbox.timeout=2",
        allow_eval=True,
        TMPDIR=str(temporary),
        **environment,
    )


async def _until_ready(stack: Stack) -> None:
    """Wait until the judge that was killed for its environment is back."""
    while len(processes("judge", stack.command)) < 2:
        await asyncio.sleep(0.1)


def _is_busy(redis: Redis) -> bool:
    try:
        return any(True for _ in in_flight(redis))
    except RedisError:  # it was killed just now
        return True


def in_flight(redis: Redis) -> Iterator[str]:
    """What Redis holds of work, none of which may last."""
    for key in redis.scan_iter(count=1000):
        name = key.decode(errors="replace")
        if name.startswith("rq:wip:"):
            # An entry of a killed judge whose job is over stays until it expires, in seven minutes.
            jobs = (member.partition(b":")[0] for member in redis.zrange(key, 0, -1))
            if any(redis.exists(b"rq:job:" + job) for job in jobs):
                yield name
        elif name.startswith(_IN_FLIGHT):
            yield name
        elif ":permits:" in name and ":held:" in name:
            pool = name.split(":held:")[0]
            clock = float(redis.hget(f"{pool}:clock", "time") or 0)
            if redis.zcount(key, clock, "+inf"):
                yield name
        elif name.startswith("plumbline:reward:") and name.endswith(_HASHES_IN_FLIGHT):
            yield f"{name} with {redis.hlen(key)}"


class Metrics:
    """The service's counters, from its page of metrics."""

    def __init__(self, text: str) -> None:
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]

        def total(name: str) -> int:
            return int(sum(one.value for one in samples if one.name == f"plumbline_reward_{name}"))

        self.requests = {
            (one.labels["route"], int(one.labels["code"])): int(one.value)
            for one in samples
            if one.name == "plumbline_reward_requests_total"
        }
        self.routes = {route for route, _ in self.requests}
        self.results, self.unjudged = total("results_total"), total("unjudged_total")
        self.scores, self.judged = total("score_count"), total("judge_seconds_count")
        self.remembered, self.pending = total("cache_hits_total"), total("pending")


async def _metrics(proxy: CuttableProxy) -> Metrics:
    async with aiohttp.ClientSession() as client, client.get(f"{proxy.url}/metrics") as response:
        return Metrics(await response.text())


if __name__ == "__main__":
    sys.exit(main())
