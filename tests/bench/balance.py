"""`make bench-balance`: how long a burst takes with each way of choosing a replica (a simulation).

The balancer is the router's own. Replicas are a model of one: a step of decoding gives each request
in flight one token and takes a time that grows with their number, as measured on an H200
(docs/benchmarks.md). Lengths of answers are log-normal; only `known` and `longest first` know them.
"""

import argparse
import asyncio
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from services.generator.router.balancer import Balancer
from services.generator.router.replica import Engine, ReplicaSlot
from services.generator.router.requests import RoutedRequest
from tests.bench.router import Replica

# Milliseconds of a step with no request, and more for each: 42,000 tokens a second with 512.
_STEP, _STEP_PER_REQUEST = 6.0, 0.012
_SLOTS = 512
_STEPS_AT_ONCE = 8
_PROMPT_TOKENS = 200


@dataclass(frozen=True, slots=True)
class Burst:
    """``at_once`` is the client's limit of requests in flight, ``median`` and ``spread`` of the
    answers' tokens; no answer is longer than ``longest``."""

    requests: int
    at_once: int
    median: float
    spread: float
    longest: int

    def lengths(self, seed: int) -> list[int]:
        chance = random.Random(seed)
        mean = math.log(self.median)
        drawn = [chance.lognormvariate(mean, self.spread) for _ in range(self.requests)]
        return [max(1, min(self.longest, int(length))) for length in drawn]


_Estimate = Callable[[int, int], int]
"""Tokens that the balancer expects, from an answer's length and the longest one's."""

POLICIES: Mapping[str, _Estimate] = {
    "fewest requests": lambda _length, _longest: 1,
    "the limit (as now)": lambda _length, longest: longest,
    "known": lambda length, _longest: length,
    "longest first": lambda length, _longest: length,
}
BURSTS = {
    "one burst, answers of 256": Burst(2048, 2048, 256, 0.0, 256),
    "one burst": Burst(2048, 2048, 350, 0.8, 4096),
    "a run with a queue": Burst(8192, 8192, 350, 0.8, 4096),
    "a run, 1,024 at once": Burst(8192, 1024, 350, 0.8, 4096),
    "long answers": Burst(4096, 2048, 2500, 1.0, 16384),
}


@dataclass(slots=True)
class _Machine:
    """A replica; ``left`` has the tokens that each request in flight still gets."""

    engine: Engine
    now: float = 0.0
    last_end: float = 0.0
    left: dict[int, tuple[int, ReplicaSlot]] = field(default_factory=dict)

    def advance(self) -> list[ReplicaSlot]:
        """Decode some steps; returns the slots of the answers that are complete."""
        steps = min(_STEPS_AT_ONCE, *(tokens for tokens, _ in self.left.values()))
        self.now += steps * (_STEP + _STEP_PER_REQUEST * len(self.left))
        self.left = {at: (tokens - steps, slot) for at, (tokens, slot) in self.left.items()}
        done = [at for at, (tokens, _) in self.left.items() if tokens <= 0]
        if done:
            self.last_end = self.now
        return [self.left.pop(at)[1] for at in done]


async def simulate(burst: Burst, policy: str, replicas: int, seed: int) -> tuple[float, float]:
    """Seconds of the burst, and the share of them for which a replica is idle, on average."""
    lengths = burst.lengths(seed)
    order = sorted(lengths, reverse=True) if policy == "longest first" else lengths
    balancer = Balancer(slots=_SLOTS, queue_size=burst.requests)
    machines = [_Machine(Engine(rank, 0, Replica(""))) for rank in range(replicas)]
    for machine in machines:
        balancer.add(machine.engine)
    waiting = list(enumerate(order))[::-1]

    async def admit(now: float) -> None:
        while waiting and sum(len(one.left) for one in machines) < min(
            burst.at_once, _SLOTS * replicas
        ):
            at, length = waiting.pop()
            expected = POLICIES[policy](length, burst.longest)
            prompt = 0 if expected == 1 else _PROMPT_TOKENS
            request = RoutedRequest("", b"", None, prompt, expected)
            slot = await balancer.acquire(balancer.ticket(request))
            machine = machines[slot.engine.rank]
            machine.now = max(machine.now, now) if not machine.left else machine.now
            machine.left[at] = (length, slot)

    await admit(0.0)
    while busy := [one for one in machines if one.left]:
        machine = min(busy, key=lambda one: one.now)
        done = machine.advance()
        for slot in done:
            balancer.release(slot, finished=True)
        if done:
            await admit(machine.now)
    ends = [one.last_end for one in machines]
    return max(ends) / 1e3, 1 - statistics.fmean(ends) / max(ends)


def compare(name: str, burst: Burst, replicas: int, seeds: Sequence[int]) -> None:
    print(f"{name}: {burst.requests} requests")
    for policy in POLICIES:
        found = [asyncio.run(simulate(burst, policy, replicas, seed)) for seed in seeds]
        seconds = statistics.fmean(one[0] for one in found)
        idle = statistics.fmean(one[1] for one in found)
        print(f"  {policy}: {seconds:.1f} s, {idle:.1%} idle at the end", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name, burst in BURSTS.items():
        compare(name, burst, options.replicas, range(options.seeds))


if __name__ == "__main__":
    main()
