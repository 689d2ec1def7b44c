"""Real servers on loopback, as processes whose log and memory a test can look at."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.processes import service_process

MIB = 2**20
# Servers with an OpenAPI description.
MODULES = {
    "sandbox": "services.sandbox",
    "aggregator": "services.aggregator",
    "reward": "services.reward",
}

# With these in its log a server has met a request that nobody thought of.
_TRACES = ("Traceback (most recent call last)", "Unhandled exception", "Error handling request")
# What a request may leave behind. Interpreters keep memory that they needed once.
_GROWTH = 256 * MIB


@dataclass(frozen=True)
class Server:
    """A running server; ``url`` is its base URL."""

    name: str
    url: str
    log: Path
    pid: int

    def description(self) -> dict[str, Any]:
        path = "/api/openapi.json" if self.name == "aggregator" else "/openapi.json"
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return dict(json.load(answer))

    def alive(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/healthz", timeout=30) as answer:
            return bool(answer.status == 200)

    def memory(self) -> int:
        """Resident bytes of the server's own process."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def traces(self) -> list[str]:
        """Lines of the log that no request may cause."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if any(trace in line for trace in _TRACES)]


@contextmanager
def served(name: str, folder: Path, **environment: str) -> Iterator[Server]:
    """Start a server; it has ended when the block is left."""
    log = folder / "log"
    with service_process(MODULES[name], log, folder / "port", **environment) as (child, url):
        assert child.process is not None
        yield Server(name, url, log, child.process.pid)


@contextmanager
def unharmed(server: Server) -> Iterator[None]:
    """Check that what happens in the block leaves the server alive, quiet and small."""
    before, traces = server.memory(), len(server.traces())
    yield
    assert server.alive(), server.name
    assert server.traces()[traces:] == [], server.name
    assert server.memory() - before < _GROWTH, server.name


def environment(name: str, redis_url: str, index: Path) -> dict[str, str]:
    """Variables with which a server starts without anything else but Redis."""
    stores = {"REDIS_URL": redis_url, "PLUMBLINE_INDEX_DIR": str(index), "SANDBOX_URLS": ""}
    return stores if name in ("aggregator", "reward") else {}
