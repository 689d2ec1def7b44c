"""Two Ray nodes with a GPU each: a replica on each, the loss of a node, a replica across both.

The nodes are raylets of one machine with loopback addresses of their own. A third one has no GPU:
the service joins the cluster there, as its pod does in a cluster of KubeRay.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from shared.service.processes import free_port
from tests.bench.generation.bench import Bench
from tests.bench.generation.client import Load, ask
from tests.bench.generation.processes import (
    Launch,
    Running,
    ServerError,
    descendants,
    running,
    send_kill,
    wait_for,
)
from tests.bench.generation.questions import prompts, questions
from tests.bench.generation.servers import OURS, Server, environment, serving

_HEAD, _OWN, _GPU_NODES = "127.0.0.2", "127.0.0.5", ("127.0.0.3", "127.0.0.4")
_ROLLOUT = "actor_rollout_ref.rollout"
_OBJECT_STORE_BYTES = 128 << 20
# Otherwise Ray writes a token into the home folder.
_WITHOUT_TOKEN = {"RAY_AUTH_MODE": "disabled"}
_CPUS = 8  # for Ray's scheduler; nothing is pinned to cores
_WAYS: Mapping[str, Sequence[str]] = {
    "a replica on each node": (f"{_ROLLOUT}.tensor_model_parallel_size=1",),
    "tensor parallel across both": (f"{_ROLLOUT}.tensor_model_parallel_size=2",),
    "pipeline parallel across both": (
        f"{_ROLLOUT}.tensor_model_parallel_size=1",
        f"{_ROLLOUT}.pipeline_model_parallel_size=2",
    ),
}


def measure(bench: Bench, passes: int) -> None:
    os.environ |= _WITHOUT_TOKEN
    bench.folder.mkdir(parents=True, exist_ok=True)
    with _Cluster.started(bench) as cluster:
        for way, overrides in _WAYS.items():
            more = (
                *overrides,
                "trainer.nnodes=2",
                f"generation.verl.ray_address={cluster.address}",
            )
            folder = bench.folder / way.replace(" ", "-")
            try:
                with serving(OURS, bench.config(1, *more), folder) as server:
                    _ready(bench, way, server)
                    _passes(bench, way, server, passes)
                    if len(server.replicas) > 1:
                        _lose(bench, way, server, cluster)
            except ServerError as error:
                print(f"  {way}: {error}")
                bench.report.line("refused", way=way, why=str(error))


def _ready(bench: Bench, way: str, server: Server) -> None:
    nodes = [url.removeprefix("http://").rpartition(":")[0] for url in server.replicas]
    print(f"  {way}: serving after {server.start_seconds:.0f} s from {', '.join(nodes)}")
    bench.report.line("ready", way=way, seconds=server.start_seconds, nodes=nodes)


def _passes(bench: Bench, way: str, server: Server, passes: int) -> None:
    rates = []
    for number in range(passes + 1):
        load = _load(bench, server, number)
        bench.report.line(
            "pass",
            way=way,
            number=number,
            tokens=load.tokens,
            seconds=load.seconds,
            failed=len(load.failed),
        )
        if number:  # the first one warms up
            rates.append(load.tokens_per_second)
    if rates:
        least, most = min(rates), max(rates)
        print(f"  {way}: {statistics.median(rates):,.0f} ({least:,.0f}-{most:,.0f}) tokens/s")


def _load(bench: Bench, server: Server, number: int) -> Load:
    size, count = bench.size, len(server.replicas)
    given = prompts(size.prompts * count, size.prompt_tokens, bench.vocabulary, number)
    return ask(questions(server.url, server.model, given, size.new_tokens), processes=count)


def _lose(bench: Bench, way: str, server: Server, cluster: "_Cluster") -> None:
    """Kill a GPU node under load, and start it again when its replica was ejected."""
    lost = _GPU_NODES[1]
    others = [url for url in server.replicas if lost not in url]
    loads: list[Load] = []
    over = Event()

    def keep_asking() -> None:
        while not over.is_set():
            loads.append(_load(bench, server, 1000 + len(loads)))

    asking = Thread(target=keep_asking)
    asking.start()
    time.sleep(1.0)  # so that requests are in flight
    before = _generations(server)
    cluster.kill(lost)
    killed = time.monotonic()
    try:
        wait_for(lambda: _healthy(server) < len(before), server.running, 0.05)
        ejected = time.monotonic() - killed
        over.set()
        asking.join()
        assert _healthy(server) == len(others), "the loss of a node took another's replica"
        cluster.start(lost)
        again = time.monotonic()
        wait_for(lambda: _healthy(server) == len(before), server.running)
        back = time.monotonic() - again
    finally:
        over.set()
    failed = sum(len(load.failed) for load in loads)
    answered = sum(len(load.answers) for load in loads) - failed
    print(
        f"  {way}: a lost node's replica ejected after {ejected:.1f} s, serving {back:.0f} s after"
        f" the node was back; meanwhile {answered} requests answered, {failed} failed"
    )
    bench.report.line("lost", way=way, ejected=ejected, back=back, answered=answered, failed=failed)


def _replicas(server: Server) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"{server.url}/readyz", timeout=10) as answer:
            return list(json.load(answer)["replicas"])
    except urllib.error.HTTPError as error:
        return list(json.load(error)["replicas"])


def _generations(server: Server) -> dict[int, int]:
    return {one["replica"]: one["generation"] for one in _replicas(server)}


def _healthy(server: Server) -> int:
    return sum(one["state"] == "healthy" for one in _replicas(server))


class _Cluster:
    """The raylets by address."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.address = f"{_HEAD}:{free_port()}"
        self._bench, self._folder = bench, folder
        self._running: dict[str, tuple[ExitStack, Running]] = {}

    @classmethod
    @contextmanager
    def started(cls, bench: Bench) -> Iterator["_Cluster"]:
        # A short path, because paths of Unix sockets are limited to about 100 bytes.
        folder = Path(tempfile.mkdtemp(prefix="pl-n-", dir="/tmp"))
        cluster = cls(bench, folder)
        try:
            for address in (_HEAD, *_GPU_NODES, _OWN):
                cluster.start(address)
            yield cluster
        finally:
            for stack, _ in reversed(cluster._running.values()):
                stack.close()
            shutil.rmtree(folder, ignore_errors=True)

    def start(self, address: str) -> None:
        stack = ExitStack()
        node = stack.enter_context(running(self._launch(address)))
        self._running[address] = stack, node
        wait_for(lambda: address in self._alive(), node, 0.5)

    def kill(self, address: str) -> None:
        """SIGKILL for everything on the node, as when its machine fails."""
        stack, node = self._running.pop(address)
        send_kill([node.process.pid, *descendants(node.process.pid)])
        stack.close()

    def _launch(self, address: str) -> Launch:
        gpu = _GPU_NODES.index(address) if address in _GPU_NODES else None
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
            f"--node-ip-address={address}",
            f"--num-gpus={0 if gpu is None else 1}",
            f"--num-cpus={0 if gpu is None else _CPUS}",
            f"--object-store-memory={_OBJECT_STORE_BYTES}",
            f"--temp-dir={self._folder / address.rpartition('.')[2]}",
            "--disable-usage-stats",
        ]
        if address == _HEAD:
            port = self.address.rpartition(":")[2]
            command += ["--head", f"--port={port}", "--include-dashboard=false"]
        else:
            command += [f"--address={self.address}"]
        joined = f"generation.verl.ray_address={self.address}"
        variables = environment(self._bench.config(1, joined))
        if not self._bench.cpu_engine:
            variables["CUDA_VISIBLE_DEVICES"] = "" if gpu is None else str(gpu)
        return Launch(f"Ray node {address}", command, variables, self._bench.folder / address)

    def _alive(self) -> list[str]:
        """Addresses of the nodes that the cluster's head knows as alive."""
        ask = (
            "import sys; from ray._raylet import GcsClient; "
            "nodes = GcsClient(address=sys.argv[1]).get_all_node_info().values(); "
            "print(*(node.node_manager_address for node in nodes if node.state == 0))"
        )
        done = subprocess.run(
            [sys.executable, "-c", ask, self.address],
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout.split()
