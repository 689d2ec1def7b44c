"""Several replicas over one, asked directly and through the router, from one start.

Direct requests show what machine and engines do without the router. A pass ends with its slowest
replica, so the time at which each replica has given its last answer is shown, too.
"""

import resource
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from tests.bench.generation.bench import Bench
from tests.bench.generation.client import Answer, Load, Question, ask
from tests.bench.generation.questions import prompts, questions
from tests.bench.generation.servers import OURS, Server, model_of, serving
from tests.bench.generation.throughput import figures

ONE, DIRECT, ROUTER = "one", "direct", "router"
_SAMPLE_MS = 250
_CLOCKS = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits"]


@dataclass(frozen=True, slots=True)
class Ends:
    """When each replica gave its last answer, in seconds, and the number of answers of each."""

    seconds: Mapping[str, float]
    answers: Mapping[str, int]

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> "Ends":
        replicas = sorted({answer.replica for answer in answers})
        mine = {name: [one for one in answers if one.replica == name] for name in replicas}
        ends = {name: max(one.ended for one in given) for name, given in mine.items()}
        return cls(ends, {name: len(given) for name, given in mine.items()})

    @property
    def idle(self) -> float:
        """Share of the replicas' time after their last answer, while another was still busy."""
        last = max(self.seconds.values())
        return 1 - statistics.fmean(self.seconds.values()) / last if last else 0.0


@dataclass(slots=True)
class Usage:
    """CPU seconds of the router's process and of the clients, and shares of the machine's time.

    ``clocks`` and ``power`` are means over the GPUs and the pass: MHz and watts, empty without
    ``nvidia-smi``.
    """

    router_cpu: float = 0.0
    clients_cpu: float = 0.0
    busy: float = 0.0
    steal: float = 0.0
    clocks: list[float] = field(default_factory=list)
    power: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pass:
    way: str
    load: Load
    usage: Usage

    @property
    def ends(self) -> Ends:
        return Ends.of(self.load.answers)


def measure(bench: Bench, replicas: int, passes: int) -> None:
    done: list[Pass] = []
    try:
        with serving(OURS, bench.config(replicas), bench.folder / f"scale-{replicas}") as server:
            for number in range(passes + 1):
                for way in (ONE, DIRECT, ROUTER):
                    one = _one_pass(bench, server, way, number)
                    if number:  # the first ones warm up
                        done.append(one)
    finally:
        _summarize(bench, replicas, done)


def _one_pass(bench: Bench, server: Server, way: str, number: int) -> Pass:
    pid = server.running.process.pid
    asked, clients = _questions(bench, server, way, number)
    with measured(pid) as usage:
        load = ask(asked, processes=clients)
    one = Pass(way, load, usage)
    bench.report.line(
        "pass",
        way=way,
        number=number,
        **figures(load),
        ends=dict(one.ends.seconds),
        answers=dict(one.ends.answers),
        **_machine(usage, load.seconds),
    )
    trouble = f", {len(load.failed)} failed: {load.failed[0].trouble}" if load.failed else ""
    print(f"  {way}, pass {number}: {load.tokens_per_second:,.0f} tokens/s{trouble}")
    return one


def _questions(bench: Bench, server: Server, way: str, number: int) -> tuple[list[Question], int]:
    """The requests, in an order in which each client process asks one replica where it is direct.

    No prompt is asked twice: the second time it would be in the engine's cache.
    """
    size, count = bench.size, len(server.replicas)
    seed = 3 * number + (ONE, DIRECT, ROUTER).index(way)
    if way == ONE:
        targets = [server.replicas[number % count]]
    else:
        targets = [server.url] if way == ROUTER else list(server.replicas)
    clients = 1 if way == ONE else count
    given = prompts(size.prompts * clients, size.prompt_tokens, bench.vocabulary, seed)
    models = {url: model_of(url) for url in targets}
    asked = [
        questions(targets[at % len(targets)], models[targets[at % len(targets)]], [prompt],
                  size.new_tokens)[0]
        for at, prompt in enumerate(given)
    ]  # fmt: skip
    return asked, clients


@contextmanager
def measured(pid: int) -> Iterator[Usage]:
    """Measure what the process, the clients that end in the block, and the machine do in it."""
    usage, process = Usage(), psutil.Process(pid)
    before = _cpu(process), _clients_cpu(), psutil.cpu_times()
    with _sampled_gpus(usage):
        yield usage
    times = psutil.cpu_times()
    total = sum(times) - sum(before[2])
    usage.router_cpu = _cpu(process) - before[0]
    usage.clients_cpu = _clients_cpu() - before[1]
    if total > 0:
        idle = times.idle + times.iowait - before[2].idle - before[2].iowait
        usage.steal = (times.steal - before[2].steal) / total
        usage.busy = 1 - idle / total - usage.steal


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _clients_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _sampled_gpus(usage: Usage) -> Iterator[None]:
    try:
        process = subprocess.Popen(
            [*_CLOCKS, f"--loop-ms={_SAMPLE_MS}"], stdout=subprocess.PIPE, text=True
        )
    except OSError:
        yield
        return
    try:
        yield
    finally:
        process.terminate()
        for line in process.communicate()[0].splitlines():
            clock, _, power = line.partition(",")
            try:
                sample = float(clock), float(power)
            except ValueError:
                continue  # cut off at the end, or a GPU that does not tell
            usage.clocks.append(sample[0])
            usage.power.append(sample[1])


def _machine(usage: Usage, seconds: float) -> dict[str, float | None]:
    return {
        "router_cpu_seconds": usage.router_cpu,
        "router_core_share": usage.router_cpu / seconds,
        "clients_cpu_seconds": usage.clients_cpu,
        "machine_busy": usage.busy,
        "machine_steal": usage.steal,
        "gpu_mhz": statistics.fmean(usage.clocks) if usage.clocks else None,
        "gpu_watts": statistics.fmean(usage.power) if usage.power else None,
    }


def _summarize(bench: Bench, replicas: int, passes: Sequence[Pass]) -> None:
    ways = {way: [one for one in passes if one.way == way] for way in (ONE, DIRECT, ROUTER)}
    rates = {
        way: _median(done, lambda one: one.load.tokens_per_second)
        for way, done in ways.items()
        if done
    }
    rows: list[list[object]] = []
    for way, rate in rates.items():
        done = ways[way]
        shown = {
            "tokens_per_second": rate,
            "over_one": rate / rates[ONE],
            "over_direct": rate / rates[DIRECT] if DIRECT in rates else None,
            "router_core_share": _median(done, lambda one: one.usage.router_cpu / one.load.seconds),
            "machine_steal": _median(done, lambda one: one.usage.steal),
            "first_end": _median(done, lambda one: min(one.ends.seconds.values())),
            "last_end": _median(done, lambda one: max(one.ends.seconds.values())),
            "idle": _median(done, lambda one: one.ends.idle),
        }
        bench.report.line("summary", way=way, replicas=replicas, passes=len(done), **shown)
        rows.append([way, *("" if cell is None else cell for cell in shown.values())])
    headers = ["way", "tokens/s", "/one", "/direct", "router's core", "steal", "first end, s",
               "last end, s", "idle"]  # fmt: skip
    bench.report.table(f"{replicas} replicas, medians of the passes", headers, rows)


def _median(passes: Sequence[Pass], value: Callable[[Pass], float]) -> float:
    return statistics.median(value(one) for one in passes)
