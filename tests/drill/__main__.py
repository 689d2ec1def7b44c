"""`python -m tests.drill`: the fault behind each alert, made on purpose over a stack on loopback.

Prometheus has the committed rules, with times that are a sixtieth. For each fault: its alerts are
inactive, fire after the fault, and end after the remedy. Prints how long each alert took to fire
and to end.
"""

import argparse
import re
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from shared.ledger import Ledger, connect
from shared.run_record import RunMeta
from shared.schemas import Generation, SampleId
from tests.drill.prometheus import Prometheus
from tests.drill.stack import Stack
from tests.reward.servers import demo_completions
from tests.waiting import until

HERE = Path(__file__).parent

Fault = Callable[[Stack], Iterator[None]]
FAULTS: list[tuple[tuple[str, ...], str, Fault]] = []


def fault(*alerts: str, made: str) -> Callable[[Fault], Fault]:
    """A generator function: what is before its ``yield`` makes a fault, the rest is the remedy."""

    def register(function: Fault) -> Fault:
        FAULTS.append((tuple(f"Plumbline{name}" for name in alerts), made, function))
        return function

    return register


@fault("NoJudges", "JudgeQueueAgeing", made="judges stopped in mid-run")
def no_judges(stack: Stack) -> Iterator[None]:
    with stack.run():
        stack.judge.stop()
        yield
        stack.judge.start()
        yield


@fault("NoProgress", "TargetDown", made="generator frozen (SIGSTOP) in mid-run")
def frozen_generator(stack: Stack) -> Iterator[None]:
    with stack.run():
        stack.generator.send(signal.SIGSTOP)
        yield
        stack.generator.send(signal.SIGCONT)
        yield


@fault("LeaseAgeing", made="sandbox frozen (SIGSTOP) in mid-run")
def frozen_sandbox(stack: Stack) -> Iterator[None]:
    with stack.run():
        stack.sandbox.send(signal.SIGSTOP)
        yield
        stack.sandbox.again()
        yield


@fault("SandboxFailing", "Unjudged", made="sandbox that answers 500")
def broken_sandbox(stack: Stack) -> Iterator[None]:
    with stack.run("judge.retry_budget=2"):
        stack.sandbox.again(str(HERE / "broken_sandbox.py"))
        yield
        stack.sandbox.again()
        yield


@fault("SandboxUntrusted", made="proxy before the sandbox that lifts memory limits")
def lying_sandbox(stack: Stack) -> Iterator[None]:
    stack.sandbox.stop()
    stack.sandbox.start(str(HERE / "lying_sandbox.py"))
    with stack.run():
        yield
        stack.sandbox.again()
        yield


@fault("RewardRefused", made="one request with an unknown data set")
def unknown_dataset(stack: Stack) -> Iterator[None]:
    item = {"completion": "x", "dataset": "nothing", "problem_id": "1"}
    assert stack.post("/v1/score", {"items": [item]}) == 404
    yield
    yield


@fault("RewardUnjudged", made="one request while the sandbox answers 500")
def unjudged_rewards(stack: Stack) -> Iterator[None]:
    stack.sandbox.again(str(HERE / "broken_sandbox.py"))
    stack.post("/v1/score", {"items": _items(8, "unjudged"), "deadline": 5})
    yield
    stack.sandbox.again()
    yield


@fault("RewardHacking", made="240 programs that end their process at once")
def hacking_rewards(stack: Stack) -> Iterator[None]:
    (item,) = _items(1, "hacking")
    programs = (f"```python\nimport os\nos._exit({number})\n```" for number in range(240))
    stack.post("/v1/score", {"items": [item | {"completion": text} for text in programs]})
    yield
    yield


@fault("RewardWaiting", made="judges stopped for 65 seconds")
def waiting_rewards(stack: Stack) -> Iterator[None]:
    stack.judge.send(signal.SIGSTOP)
    body = {"items": _items(20, "waiting"), "deadline": 300}
    client = threading.Thread(target=stack.post, args=("/v1/score", body))
    client.start()
    time.sleep(65)
    stack.judge.send(signal.SIGCONT)
    yield
    client.join(120)
    yield


@fault("ReplicaRestarting", made="an engine that ends while it loads")
def no_engine(stack: Stack) -> Iterator[None]:
    stack.generator.again(str(HERE / "no_engine.py"))
    yield
    stack.generator.again()
    yield


@fault("IndexBehind", made="index locked while 1,200 verdicts come")
def locked_index(stack: Stack) -> Iterator[None]:
    ledger = Ledger(connect(stack.redis.url), "backlog")
    index = stack.folder / "index" / "index.sqlite"
    with sqlite3.connect(index, isolation_level=None) as connection:
        connection.execute("BEGIN IMMEDIATE")
        ledger.open(RunMeta(), None, [])
        for number in range(1200):
            ledger.record(Generation.missing(SampleId("backlog", str(number))))
        yield
        connection.execute("ROLLBACK")
    yield
    ledger.delete()


@fault("RedisMemoryHigh", made="Redis filled to 88 % of its maxmemory")
def full_redis(stack: Stack) -> Iterator[None]:
    with Redis.from_url(stack.redis.url) as redis:
        ballast = [f"ballast:{number}" for number in range(21)]
        redis.setrange(ballast[0], 40_000_000, b"x")
        small = int(redis.info("memory")["used_memory"] / 0.6)
        redis.config_set("maxmemory", small)
        for key in ballast[1:]:
            redis.setrange(key, small * 28 // 2000, b"x")
            time.sleep(0.5)
        yield
        redis.config_set("maxmemory", 4 * small)
        yield
        redis.delete(*ballast)
        redis.config_set("maxmemory", 0)


@fault("RedisDown", made="Redis killed")
def dead_redis(stack: Stack) -> Iterator[None]:
    stack.redis.kill()
    yield
    stack.redis.start_again()
    yield


def _items(number: int, mark: str) -> list[dict[str, str]]:
    """Items that no earlier request had."""
    chosen = demo_completions()[:number]
    return [
        {
            "dataset": answer["dataset"],
            "problem_id": answer["problem_id"],
            "completion": f"{answer['completion']}\n<!-- {mark} -->",
        }
        for answer in chosen
    ]


@contextmanager
def _stack() -> Iterator[tuple[Stack, Prometheus]]:
    with tempfile.TemporaryDirectory(prefix="drill-") as place:
        folder = Path(place)
        folder.chmod(0o755)
        stack = Stack(folder)
        try:
            yield stack, stack.start()
        finally:
            stack.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    parser.add_argument("--only", default="", help="alerts whose names match this expression")
    parser.add_argument("--keep", default="outputs/drill", help="folder for table and logs")
    options = parser.parse_args()
    kept = Path(options.keep)
    kept.mkdir(parents=True, exist_ok=True)
    rows, failed = [], False
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the stack, too
    with _stack() as (stack, prometheus):
        for alerts, made, function in FAULTS:
            if not any(re.search(options.only, alert) for alert in alerts):
                continue
            try:
                rows += _try(alerts, made, function, stack, prometheus)
            except Exception:  # noqa: BLE001 - the other faults are tried, too
                failed = True
                traceback.print_exc()
                print(prometheus.alerts(), flush=True)
            (kept / "table.md").write_text("\n".join(rows) + "\n")
        for service in stack.services.values():
            (kept / service.log.name).write_bytes(service.log.read_bytes())
    print("\n".join(rows))
    return int(failed)


def _try(
    alerts: tuple[str, ...],
    made: str,
    function: Fault,
    stack: Stack,
    prometheus: Prometheus,
) -> list[str]:
    until(f"{alerts} inactive", lambda: prometheus.alerts().keys().isdisjoint(alerts), 60)
    steps = function(stack)
    fired: dict[str, float] = {}
    ended: dict[str, float] = {}
    try:
        next(steps)
        began = time.monotonic()

        def all_fired() -> bool:
            for name, states in prometheus.alerts().items():
                if name in alerts and "firing" in states and name not in fired:
                    fired[name] = time.monotonic() - began
            return len(fired) == len(alerts)

        until(f"{alerts} firing", all_fired, 90)
        next(steps)
        mended = time.monotonic()

        def all_ended() -> bool:
            left = prometheus.alerts()
            for name in set(alerts) - left.keys() - ended.keys():
                ended[name] = time.monotonic() - mended
            return len(ended) == len(alerts)

        until(f"{alerts} ended", all_ended, 90)
    finally:
        steps.close()
    lines = [f"| {name} | {made} | {fired[name]:.0f} s | {ended[name]:.0f} s |" for name in alerts]
    print("\n".join(lines), flush=True)
    return lines


if __name__ == "__main__":
    sys.exit(main())
