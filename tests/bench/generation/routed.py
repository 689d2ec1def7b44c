"""Router latency with a real engine, and a check that no concurrent request is lost."""

import random
import statistics
from collections.abc import Sequence
from itertools import chain

from tests.bench.generation.bench import Bench
from tests.bench.generation.client import Answer, Question, ask
from tests.bench.generation.processes import resident_mb, watched_mb
from tests.bench.generation.questions import prompts, questions
from tests.bench.generation.servers import OURS, Server, model_of, serving
from tests.bench.generation.throughput import figures

_WARM_UP = 20
_BURST_TOKENS = 8


def measure(bench: Bench) -> None:
    with serving(OURS, bench.config(), bench.folder / "router") as server:
        _added(bench, server)
        _burst(bench, server)


def _added(bench: Bench, server: Server) -> None:
    """Single tokens, one request at a time, in pairs whose order is left to chance."""
    chance = random.Random(0)
    ways = [(server.replicas[0], model_of(server.replicas[0])), (server.url, server.model)]
    count = bench.size.pairs + _WARM_UP
    # No prompt is asked twice: the second time the engine would have it in its cache.
    asked = [
        questions(url, model, _prompts(bench, count, seed), new_tokens=1)
        for seed, (url, model) in enumerate(ways)
    ]
    orders = [chance.sample((0, 1), 2) for _ in range(count)]
    mixed: list[Question] = [asked[way][at] for at, order in enumerate(orders) for way in order]
    answers = ask(mixed, at_once=1).answers
    ways_taken = list(chain.from_iterable(orders))
    direct, routed = (
        [one for one, taken in zip(answers, ways_taken, strict=True) if taken == way][_WARM_UP:]
        for way in (0, 1)
    )
    _show_added(bench, direct, routed)


def _prompts(bench: Bench, count: int, seed: int) -> list[list[int]]:
    return prompts(count, bench.size.prompt_tokens, bench.vocabulary, seed)


def _show_added(bench: Bench, direct: Sequence[Answer], routed: Sequence[Answer]) -> None:
    times = {
        "direct": [1e3 * one.seconds for one in direct],
        "router": [1e3 * one.seconds for one in routed],
    }
    rows = [[name, statistics.median(ms), _p90(ms)] for name, ms in times.items()]
    rows.append(["added", rows[1][1] - rows[0][1], rows[1][2] - rows[0][2]])
    bench.report.line(
        "latency",
        pairs=len(direct),
        failed=sum(1 for one in (*direct, *routed) if one.trouble),
        **{f"{name}_median_ms": median for name, median, _ in rows},
        **{f"{name}_p90_ms": p90 for name, _, p90 in rows},
    )
    bench.report.table("One token, one request at a time", ["way", "median ms", "p90 ms"], rows)


def _p90(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=10)[-1]


def _burst(bench: Bench, server: Server) -> None:
    pid = server.running.process.pid
    given = _prompts(bench, bench.size.burst, seed=2)
    with watched_mb(pid) as seen:
        load = ask(questions(server.url, server.model, given, _BURST_TOKENS))
    memory = [seen[0], max(seen), resident_mb(pid)]
    names = ("resident_before_mb", "resident_peak_mb", "resident_after_mb")
    bench.report.line("burst", **figures(load), **dict(zip(names, memory, strict=True)))
    headers = ["requests", "failed", "seconds", "MB before", "MB at most", "MB after"]
    row = [len(load.answers), len(load.failed), load.seconds, *memory]
    bench.report.table("All at once through the router", headers, [row])
