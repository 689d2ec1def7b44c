"""`make bench-generate`: tokens a second of our generator, and of `vllm serve` with its settings.

    python -m tests.bench.generate --model DIR --replicas 1,2,4

Each measurement is printed as it is made. A benchmark that is interrupted, or ended by SIGTERM as
by `timeout`, prints what it has. With `--cpu-engine` loads are small and only show that it works.
What follows `--set` are keys of our configuration, for both sides:
`--set actor_rollout_ref.rollout.enforce_eager=true`.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from tests.bench.generation.client import ask, prompts, questions
from tests.bench.generation.routers import process, route
from tests.bench.generation.servers import (
    CPU,
    GPU,
    OURS,
    SIDES,
    VLLM,
    Server,
    ServerError,
    Size,
    make_config,
    model_of,
    serving,
    supervised,
)

DIRECT = f"{OURS}-direct"
Rates = dict[tuple[str, int], list[float]]
"""Tokens per second of each pass, by side and number of replicas."""


def main() -> int:
    options = _arguments()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    size = _size(options)
    print(f"{options.model}, {size}, {options.set}")
    rates: Rates = {}
    with TemporaryDirectory(prefix="bench-") as temporary:
        folder = options.logs or Path(temporary)
        try:
            with supervised():
                for replicas in options.replicas:
                    _measure(options, size, folder, replicas, rates)
        except KeyboardInterrupt:
            return 130
        except ServerError as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            _summarize(rates)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="folder of the model")
    add("--logs", type=Path, help="folder for the servers' logs and files, which are then kept")
    add("--cpu-engine", action="store_true", help="engines on this machine's CPUs")
    add("--set", nargs="*", default=[], metavar="KEY=VALUE")
    add("--sides", type=_sides, default=[OURS, VLLM], help=f"of {', '.join(SIDES)}")
    add("--replicas", type=_numbers, default=[1], help="comma-separated; the load grows with them")
    add("--passes", type=int, default=5, help="of a server, after the first, which does not count")
    add("--together", action="store_true", help="both servers run, and passes take turns")
    add("--direct", action="store_true", help="also ask some of our replicas, with and without")
    add("--total", type=int, default=0, help="requests of a pass, however many replicas are asked")
    for name in Size.__dataclass_fields__:
        add(f"--{name.replace('_', '-')}", type=int)
    return parser.parse_args()


def _size(options: argparse.Namespace) -> Size:
    values = {name: getattr(options, name) for name in Size.__dataclass_fields__}
    chosen = {name: value for name, value in values.items() if value is not None}
    return replace(CPU if options.cpu_engine else GPU, **chosen)


def _sides(text: str) -> list[str]:
    if unknown := set(text.split(",")) - set(SIDES):
        raise argparse.ArgumentTypeError(f"no sides of the comparison: {', '.join(unknown)}")
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _measure(
    options: argparse.Namespace, size: Size, folder: Path, replicas: int, rates: Rates
) -> None:
    """Measure all sides with so many replicas, and add the rates."""
    config = make_config(options.model, size, replicas, options.set, cpu_engine=options.cpu_engine)
    for group in [options.sides] if options.together else [[side] for side in options.sides]:
        with ExitStack() as stack:
            servers = [
                stack.enter_context(serving(side, config, folder / f"{side}-{replicas}"))
                for side in group
            ]
            ways = [(server, replicas) for server in servers]
            if options.direct:
                ways += [part for server in servers for part in _parts(server, stack)]
            for number in range(options.passes + 1):
                for server, count in ways:
                    rate = _pass(options, size, server, count, number)
                    if number > 0:  # the first one of a server warms it up
                        rates.setdefault((server.side, count), []).append(rate)


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
                yield replace(server, urls=[pipe.recv()], model=model, pid=child.pid), count


def _pass(
    options: argparse.Namespace, size: Size, server: Server, replicas: int, number: int
) -> float:
    """Send all prompts at once; return the tokens per second.

    The prompts of another pass are others, so that no cache has them.
    """
    count = options.total or size.prompts * replicas
    vocabulary = json.loads((Path(options.model) / "config.json").read_text())["vocab_size"]
    seed = f"{server.side} {replicas} {number} {server.pid}"
    made = prompts(count, size.prompt_tokens, vocabulary, seed)
    asked = questions(server.urls, server.model, made, size.new_tokens)
    before = _cpu_seconds(server)
    load = ask(asked, processes=replicas)
    cpu = _cpu_seconds(server) - before
    trouble = f", {len(load.failed)} failed: {load.failed[0].trouble}" if load.failed else ""
    print(
        f"  {server.side} x{replicas}, {count} requests, pass {number}: "
        f"{load.tokens_per_second:,.0f} tokens/s in {load.seconds:.1f} s, {cpu:.2f} s of CPU of "
        f"the asked process, which started in {server.start_seconds:.0f} s{trouble}"
    )
    return load.tokens_per_second


def _cpu_seconds(server: Server) -> float:
    """Those of the process that is asked: of our generator it is the router's."""
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


def _summarize(rates: Rates) -> None:
    medians = {key: statistics.median(values) for key, values in rates.items()}
    print("\nmedian (least, most) tokens/s | ours over this | over one replica")
    for (side, replicas), values in rates.items():
        median = medians[side, replicas]
        ratios = [
            f"{over / under:.2f}" if over and under else "-"
            for over, under in (
                (medians.get((OURS, replicas)), median),
                (median, medians.get((side, 1))),
            )
        ]
        figures = f"{median:,.0f} ({min(values):,.0f}, {max(values):,.0f})"
        print(f"{side} x{replicas}: {figures} | {' | '.join(ratios)}")


if __name__ == "__main__":
    sys.exit(main())
