"""Startup time to the first token, with empty and with filled kernel caches."""

from collections.abc import Sequence

from tests.bench.generation.bench import Bench
from tests.bench.generation.servers import cold_caches, serving


def measure(bench: Bench, sides: Sequence[str], starts: int) -> None:
    rows: list[list[object]] = []
    try:
        for side in sides:
            cold_caches(bench.folder / "caches" / side)
            rows.append([side])
            for number in range(starts):
                folder = bench.folder / f"start-{side}-{number}"
                with serving(side, bench.config(), folder) as server:
                    seconds = server.start_seconds
                rows[-1].append(seconds)
                bench.report.line("start", side=side, number=number, seconds=seconds)
                print(f"  {side}, start {number}: {seconds:.1f} s")
    finally:
        headers = ["side", *(f"start {number}, s" for number in range(starts))]
        full = [[*row, *[""] * (len(headers) - len(row))] for row in rows]
        bench.report.table("From a process's start to the first token", headers, full)
