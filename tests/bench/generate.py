"""`make bench-generate`: tokens a second of our generator, and of `vllm serve` with its settings.

    python -m tests.bench.generate --model DIR --replicas 1,2,4 --out results.jsonl

Each measurement goes to `--out` as it is made. After `--limit-seconds` the benchmark ends with what
it has. With `--cpu-engine` loads are small and only show that it works. What follows `--set` are
keys of our configuration, for all sides: `--set actor_rollout_ref.rollout.enforce_eager=true`.
"""

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.generation import throughput
from tests.bench.generation.bench import CPU, GPU, Bench, Size
from tests.bench.generation.processes import (
    ServerError,
    TerminatedError,
    TimeUpError,
    supervised,
)
from tests.bench.generation.report import Report
from tests.bench.generation.servers import OURS, SIDES, VLLM


def main() -> int:
    options = _arguments()
    sys.stdout.reconfigure(line_buffering=True)
    with TemporaryDirectory(prefix="bench-") as temporary:
        folder = options.logs or Path(temporary)
        size = _size(options)
        facts = {"model": options.model, "size": asdict(size), "set": options.set}
        bench = Bench(
            model=options.model,
            size=size,
            cpu_engine=options.cpu_engine,
            folder=folder,
            report=Report("throughput", options.out, facts),
            overrides=options.set,
        )
        try:
            with supervised(options.limit_seconds):
                throughput.measure(
                    bench,
                    throughput.Plan(
                        options.sides,
                        options.replicas,
                        options.passes,
                        options.rounds,
                        options.together,
                        options.direct,
                        options.total,
                    ),
                )
        except TimeUpError:
            print(f"ended after {options.limit_seconds:g} s with what there is")
            bench.report.line("ended", why="time limit")
        except TerminatedError:
            print("ended by SIGTERM", file=sys.stderr)
            return 143
        except ServerError as error:
            print(error, file=sys.stderr)
            bench.report.line("ended", why=str(error))
            return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="folder of the model")
    add("--out", type=Path, help="file of JSON lines (default: standard output)")
    add("--logs", type=Path, help="folder for the servers' logs and files, which are then kept")
    add("--limit-seconds", type=float, default=580.0)
    add("--cpu-engine", action="store_true", help="engines on this machine's CPUs")
    add("--set", nargs="*", default=[], metavar="KEY=VALUE")
    add("--sides", type=_sides, default=[OURS, VLLM], help=f"of {', '.join(SIDES)}")
    add("--replicas", type=_numbers, default=[1], help="comma-separated; the load grows with them")
    add("--passes", type=int, default=5, help="of a server, after the first, which does not count")
    add("--rounds", type=int, default=1, help="starts of each server, in turns")
    add("--together", action="store_true", help="both servers run, and passes take turns")
    add("--direct", action="store_true", help="also ask some of our replicas, with and without")
    add("--total", type=int, default=0, help="requests of a pass, however many replicas are asked")
    for name in Size.__dataclass_fields__:
        add(f"--{name.replace('_', '-')}", type=int)
    return parser.parse_args()


def _size(options: argparse.Namespace) -> Size:
    given = {name: getattr(options, name) for name in Size.__dataclass_fields__}
    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(CPU if options.cpu_engine else GPU, **chosen)


def _sides(text: str) -> list[str]:
    if unknown := set(text.split(",")) - set(SIDES):
        raise argparse.ArgumentTypeError(f"no sides of the comparison: {', '.join(unknown)}")
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
