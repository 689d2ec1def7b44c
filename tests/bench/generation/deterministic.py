"""Throughput of deterministic kernels relative to the default ones."""

import statistics

from tests.bench.generation.bench import Bench
from tests.bench.generation.servers import OURS, serving
from tests.bench.generation.throughput import one_pass


def measure(bench: Bench, passes: int) -> None:
    rates: dict[bool, float] = {}
    try:
        for deterministic in (False, True):
            config = bench.config(1, f"generation.deterministic={deterministic}")
            with serving(OURS, config, bench.folder / f"deterministic-{deterministic}") as server:
                done = [one_pass(bench, server, 1, number) for number in range(passes + 1)]
            rates[deterministic] = statistics.median(
                one.tokens_per_second for one in done if one.counts
            )
            bench.report.line(
                "rate", deterministic=deterministic, tokens_per_second=rates[deterministic]
            )
    finally:
        rows: list[list[object]] = [[name, rate] for name, rate in rates.items()]
        bench.report.table("Throughput", ["deterministic", "tokens/s"], rows)
        if len(rates) == 2:
            ratio = rates[True] / rates[False]
            bench.report.line("summary", with_over_without=ratio)
            print(f"  with / without: {ratio:.3f}")
