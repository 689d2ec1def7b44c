"""Throughput of our generator against `vllm serve`, and of several replicas against one."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import psutil

from tests.bench.generation.bench import Bench
from tests.bench.generation.client import Load, ask
from tests.bench.generation.questions import prompts, questions
from tests.bench.generation.routers import process, route
from tests.bench.generation.servers import OURS, Server, model_of, serving

DIRECT = f"{OURS}-direct"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure.

    ``together``: both servers run all the time, share the GPU's memory and take turns.
    ``direct``: some of our replicas are asked as well, without the router between and behind
    another one. ``total``: this many requests, however many replicas are asked; by default the load
    grows with the replicas.
    """

    sides: Sequence[str]
    replicas: Sequence[int]
    passes: int
    rounds: int
    together: bool
    direct: bool = False
    total: int = 0


@dataclass(frozen=True, slots=True)
class Pass:
    side: str
    replicas: int
    number: int
    tokens_per_second: float

    @property
    def counts(self) -> bool:
        """The first one of a server warms it up."""
        return self.number > 0


def measure(bench: Bench, plan: Plan) -> None:
    done: list[Pass] = []
    try:
        for replicas in plan.replicas:
            for one in _passes(bench, plan, replicas):
                done.append(one)
    finally:
        _summarize(bench, [one for one in done if one.counts])


def _passes(bench: Bench, plan: Plan, replicas: int) -> Iterator[Pass]:
    for turn in range(plan.rounds):
        # Neither always has the machine as the other left it.
        sides = plan.sides if turn % 2 == 0 else plan.sides[::-1]
        for group in [sides] if plan.together else [[side] for side in sides]:
            with ExitStack() as stack:
                servers = [
                    stack.enter_context(
                        serving(
                            side,
                            bench.config(replicas),
                            bench.folder / f"{side}-{replicas}-{turn}",
                        )
                    )
                    for side in group
                ]
                asked = [(server, replicas) for server in servers]
                if plan.direct:
                    asked += [part for server in servers for part in _parts(server, stack)]
                for number in range(plan.passes + 1):
                    for server, part in asked:
                        yield one_pass(bench, server, part, number, plan.total)


def _parts(server: Server, stack: ExitStack) -> Iterator[tuple[Server, int]]:
    """One, two and more of the engines behind our router, alone and behind another router."""
    engines = server.replicas
    for count in (1, 2, 4, 8):
        if server.side == OURS and count <= len(engines):
            some = engines[:count]
            model = model_of(engines[0])
            yield replace(server, side=DIRECT, urls=some, model=model), count
            if count < len(engines):
                child, pipe = stack.enter_context(process(route, some, model))
                url = pipe.recv()
                yield replace(server, urls=[url], model=model, pid=child.pid), count


def one_pass(bench: Bench, server: Server, replicas: int, number: int, total: int = 0) -> Pass:
    """All prompts at once; those of another pass are others, so that no cache has them."""
    size = bench.size
    seed = f"{server.side} {replicas} {number} {server.pid is None}"
    count = total or size.prompts * replicas
    given = prompts(count, size.prompt_tokens, bench.vocabulary, seed)
    asked = questions(server.urls, server.model, given, size.new_tokens)
    before = _cpu_seconds(server)
    load = ask(asked, processes=replicas)
    bench.report.line(
        "pass",
        side=server.side,
        replicas=replicas,
        number=number,
        start_seconds=server.start_seconds,
        server_cpu_seconds=_cpu_seconds(server) - before,
        **figures(load),
    )
    trouble = f", {len(load.failed)} failed: {load.failed[0].trouble}" if load.failed else ""
    rate = f"{load.tokens_per_second:,.0f} tokens/s"
    print(f"  {server.side} x{replicas}, {count} requests, pass {number}: {rate}{trouble}")
    return Pass(server.side, replicas, number, load.tokens_per_second)


def _cpu_seconds(server: Server) -> float:
    """Those of the process that is asked: of our generator it is the router's."""
    times = psutil.Process(server.pid or server.running.process.pid).cpu_times()
    return float(times.user + times.system)


def figures(load: Load) -> dict[str, object]:
    return {
        "requests": len(load.answers),
        "failed": len(load.failed),
        "trouble": load.failed[0].trouble if load.failed else "",
        "tokens": load.tokens,
        "seconds": load.seconds,
        "tokens_per_second": load.tokens_per_second,
    }


def _summarize(bench: Bench, passes: Sequence[Pass]) -> None:
    rates: dict[tuple[str, int], list[float]] = {}
    for one in passes:
        rates.setdefault((one.side, one.replicas), []).append(one.tokens_per_second)
    medians = {key: statistics.median(values) for key, values in rates.items()}
    rows = []
    for (side, replicas), values in rates.items():
        found = {
            "passes": len(values),
            "tokens_per_second": medians[side, replicas],
            "lowest": min(values),
            "highest": max(values),
            "ours_over_this": _ratio(medians, (OURS, replicas), (side, replicas)),
            "over_one_replica": _ratio(medians, (side, replicas), (side, 1)),
        }
        bench.report.line("summary", side=side, replicas=replicas, **found)
        rows.append([side, replicas, *("" if cell is None else cell for cell in found.values())])
    headers = ["side", "replicas", "passes", "tokens/s", "lowest", "highest", "ours/this", "/one"]
    bench.report.table("Throughput, medians of the passes", headers, rows)


def _ratio(
    medians: Mapping[tuple[str, int], float], over: tuple[str, int], under: tuple[str, int]
) -> float | None:
    return medians[over] / medians[under] if over in medians and under in medians else None
