"""`make endurance`: hours of reward traffic with faults, and what the stack holds at the end.

Starts `plumb reward --embedded` twice: undisturbed, to learn the rewards, then for the run. All
requests go over loopback. Prints findings as they come and a table of what the stack holds; ends
with exit code 1 if anything was found.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Self

import psutil
from redis import Redis
from redis.exceptions import RedisError

from tests.chaos.faults import SIGNALS, adopt_orphans, kill_all, victims
from tests.chaos.invariants import SHARED_FILES, leftovers, nobody_left
from tests.chaos.schedule import FREEZES, Kind
from tests.e2e.plumb import DEMO
from tests.e2e.reward import RewardService, reward_service
from tests.endurance.answers import answers
from tests.endurance.traffic import Traffic

# Seconds in which a stack without requests lets go of everything, and in which its processes end.
_QUIET, _LEAVE = 120.0, 20.0
# What a process may hold more at the end: part of its memory, and descriptors or threads.
_PART, _MORE = 0.25, 12
# How often each fault is drawn. The service is never killed: its memory is what is measured.
_FAULTS = {
    ("kill", "judge"): 6, ("kill", "sandbox"): 3, ("kill", "slot"): 3, ("kill", "redis"): 2,
    ("terminate", "judge"): 3, ("terminate", "sandbox"): 2, ("terminate", "redis"): 1,
    ("freeze", "judge"): 3, ("freeze", "sandbox"): 2, ("freeze", "redis"): 2,
    ("freeze", "reward"): 2, ("cut", "redis"): 3,
}  # fmt: skip


def main() -> int:
    options = _options()
    adopt_orphans()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the stack is stopped too
    run = Run(options)
    try:
        asyncio.run(run.run())
    finally:
        kill_all()
    print(f"{run.findings} findings", flush=True)
    return 1 if run.findings else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make endurance ARGS=…", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=1.0, help="requests a second (%(default)g)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault-every", type=float, default=25.0, metavar="S")
    return parser.parse_args()


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds; memory in MB."""

    memory: float
    descriptors: int
    threads: int
    children: int

    @classmethod
    def by(cls, process: psutil.Process) -> Self:
        """What a process holds now; raises ``psutil.Error`` if it has ended."""
        with process.oneshot():
            memory = round(process.memory_info().rss / 2**20, 1)
            children = len(process.children())
            return cls(memory, process.num_fds(), process.num_threads(), children)


class Run:
    """One run; ``findings`` counts what did not hold."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.findings = 0
        self._options, self._random = options, Random(options.seed)
        self._faults = Counter[str]()

    async def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="endurance-") as place:
            Path(place).chmod(0o755)  # programs of other users have their folders below it
            folders = [Path(place, name) for name in ("undisturbed", "tmp")]
            for folder in folders:
                folder.mkdir()
                folder.chmod(0o1777)
            with _service(folders[0]) as service:
                async with self._traffic(service.url) as learned:
                    await learned.learn()
            with _service(folders[1], PLUMBLINE_REWARD_REMEMBER="60") as service:
                url = service.part("services.reward").environ()["REDIS_URL"]
                with Redis.from_url(url, socket_timeout=10) as redis:
                    await self._disturbed(service, redis, learned)
            self._check_end(service, folders[1])

    def _traffic(self, url: str) -> Traffic:
        return Traffic(url, answers(), Random(self._options.seed), self._found)

    async def _disturbed(self, service: RewardService, redis: Redis, learned: Traffic) -> None:
        command, seconds = service.process.pid, 60 * self._options.minutes
        async with self._traffic(service.url) as traffic:
            traffic.expected = learned.expected
            # What only the first requests cost belongs to no run.
            await traffic.run(min(60.0, seconds / 6), self._options.rate)
            await asyncio.sleep(5)
            spared = victims("judge", command)[-1]
            steady = {
                "command": psutil.Process(command),
                "reward service": victims("reward", command)[0],
                "judge that is not killed": spared,
            }
            before = {name: Held.by(process) for name, process in steady.items()}
            keys, names = _kinds(redis), self._names(command)
            await asyncio.gather(
                traffic.run(seconds, self._options.rate),
                self._disturb(command, spared.pid, redis, seconds),
            )
        await self._until_quiet(redis, keys)
        if (after := self._names(command)) != names:
            self._found("no process is left over or missing", f"{names}, then {after}")
        tally = traffic.tally
        times = sorted(tally.seconds) or [0.0]
        print(
            f"{sum(tally.asked.values())} requests, {sum(tally.answered.values())} answered right, "
            f"{sum(tally.left.values())} broken off, {sum(tally.retried.values())} attempts again "
            f"({dict(tally.retried)}); median {times[len(times) // 2]:.2f} s, 99th percentile "
            f"{times[len(times) * 99 // 100]:.2f} s; faults: {dict(self._faults)}"
        )
        for name, process in steady.items():
            with suppress(psutil.NoSuchProcess):
                self._compare(name, before[name], Held.by(process))
                continue
            self._found("what was not killed lives", name)

    def _compare(self, name: str, first: Held, last: Held) -> None:
        print(f"{name}: {first}, then {last}")
        if last.memory > first.memory * (1 + _PART):
            self._found("memory is flat", f"{name}: {first.memory} MB, then {last.memory}")
        for part, more in (("descriptors", _MORE), ("threads", _MORE), ("children", 0)):
            if getattr(last, part) > getattr(first, part) + more:
                self._found(f"no {part} are left over", f"{name}: {first}, then {last}")

    def _names(self, command: int) -> dict[str, int]:
        names = ("reward", "judge", "sandbox", "redis")
        return {name: len(victims(name, command)) for name in names}

    # Faults

    async def _disturb(self, command: int, spared: int, redis: Redis, seconds: float) -> None:
        """Inject faults until the time is over; at the end nothing is frozen."""
        ends = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self._random.expovariate(1 / self._options.fault_every))
                if time.monotonic() > ends:
                    return
                kind, name = self._random.choices([*_FAULTS], [*_FAULTS.values()])[0]
                self._faults[f"{kind} {name}"] += 1
                if kind == "cut":
                    with suppress(RedisError):
                        await asyncio.to_thread(redis.client_kill_filter, _type="normal")
                    continue
                chosen = [process for process in victims(name, command) if process.pid != spared]
                if chosen:
                    victim = self._random.choice(chosen)
                    group.create_task(_strike(victim, kind, self._random.choice(FREEZES)))

    # Checks

    async def _until_quiet(self, redis: Redis, before: Counter[str]) -> None:
        """Wait until Redis has no more keys of each kind than before."""
        ends = time.monotonic() + _QUIET
        while True:
            await asyncio.sleep(5)
            with suppress(RedisError):
                left = _kinds(redis) - before
                if not left:
                    return
                if time.monotonic() > ends:
                    self._found("nothing is held in Redis", str(dict(left)))
                    return

    def _check_end(self, service: RewardService, temporary: Path) -> None:
        if service.process.returncode != 0:
            self._found("SIGTERM ends it well", f"exit code {service.process.returncode}")
        for violation in [*nobody_left(_LEAVE), *leftovers(temporary, SHARED_FILES)]:
            self._found(violation.invariant, violation.found)

    def _found(self, what: str, seen: str) -> None:
        self.findings += 1
        print(f"FOUND not true that {what}: {seen}", flush=True)


def _service(temporary: Path, **environment: str):
    return reward_service(
        DEMO / "data",
        "judge.workers=3",  # the first is a thread of the command
        "sandbox.timeout=2",
        allow_eval=True,
        TMPDIR=str(temporary),
        **environment,
    )


async def _strike(victim: psutil.Process, kind: str, seconds: float) -> None:
    with suppress(psutil.NoSuchProcess):
        victim.send_signal(SIGNALS[Kind(kind)])
    if kind == "freeze":
        try:
            await asyncio.sleep(seconds)
        finally:
            with suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.SIGCONT)


def _kinds(redis: Redis) -> Counter[str]:
    """Keys of Redis by the first two parts of their names; remembered answers may stay."""
    names = (key.decode(errors="replace") for key in redis.scan_iter(count=1000))
    return Counter(":".join(name.split(":")[:2]) for name in names if ":answer:" not in name)


if __name__ == "__main__":
    sys.exit(main())
