"""`make bench-generate`: our generator against plain vLLM and against verl's own script.

    python -m tests.bench.generate --model DIR throughput --replicas 1,2,4 --out results.jsonl

One scenario a run, each of which makes its own starts and ratios:

- `throughput`: tokens a second of the generator, and of `vllm serve` with the same settings.
- `start`: seconds from a process's start to the first token, with empty caches and again.
- `uneven`: verl's `main_generation_server` on prompts of very different lengths.
- `router`: what the router adds to a request, and many requests at once.
- `scale`: several replicas over one, asked directly and through the router, from one start.
- `nodes`: two Ray nodes with a GPU each: throughput, the loss of a node, a replica across both.
- `deterministic`: tokens a second with `generation.deterministic` over those without.

Each measurement goes to `--out` as it is made. After `--limit-seconds` the run ends with what it
has. With `--cpu-engine` loads are small and only show that it works. What follows `--set` are keys
of our configuration, for all sides: `--set actor_rollout_ref.rollout.enforce_eager=true`.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.generation import deterministic, nodes, routed, scale, start, throughput, uneven
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
            report=Report(options.scenario, options.out, facts),
            overrides=options.set,
        )
        try:
            with supervised(options.limit_seconds):
                _SCENARIOS[options.scenario](bench, options)
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


def _throughput(bench: Bench, options: argparse.Namespace) -> None:
    plan = throughput.Plan(
        options.sides,
        options.replicas,
        options.passes,
        options.rounds,
        options.together,
        options.direct,
    )
    throughput.measure(bench, plan)


def _start(bench: Bench, options: argparse.Namespace) -> None:
    start.measure(bench, options.sides, options.starts)


def _uneven(bench: Bench, options: argparse.Namespace) -> None:
    for replicas in options.replicas:
        uneven.measure(bench, replicas, (OURS, "verl"))


def _router(bench: Bench, _options: argparse.Namespace) -> None:
    routed.measure(bench)


def _scale(bench: Bench, options: argparse.Namespace) -> None:
    for replicas in options.replicas:
        scale.measure(bench, replicas, options.passes)


def _nodes(bench: Bench, options: argparse.Namespace) -> None:
    nodes.measure(bench, options.passes)


def _deterministic(bench: Bench, options: argparse.Namespace) -> None:
    deterministic.measure(bench, options.passes)


_SCENARIOS: Mapping[str, Callable[[Bench, argparse.Namespace], None]] = {
    "throughput": _throughput,
    "start": _start,
    "uneven": _uneven,
    "router": _router,
    "scale": _scale,
    "nodes": _nodes,
    "deterministic": _deterministic,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("scenario", choices=_SCENARIOS)
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
    add("--direct", action="store_true", help="also ask our replica without the router between")
    add("--starts", type=int, default=2)
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
