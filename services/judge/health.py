"""Operations endpoints of a worker: health check, readiness and Prometheus metrics."""

import http.client
import json
import os
import threading
import urllib.request
from collections.abc import Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, ProcessCollector
from prometheus_client.exposition import generate_latest
from redis import Redis

from services.judge.settings import JudgeSettings
from shared.errors import ServiceError
from shared.files import write_text
from shared.ledger import trouble
from shared.readiness import Readiness
from shared.schemas import Verdict


class HealthServer:
    """Serves on a thread; ready means that Redis responds, and one of the given sandboxes."""

    def __init__(self, settings: JudgeSettings, redis: Redis, registry: CollectorRegistry) -> None:
        """Bind the port.

        Raises:
            ServiceError: The port cannot be bound.
        """
        self._sandbox = SandboxWatch(settings.sandboxes)
        readiness = Readiness(partial(trouble, redis), lambda: self._sandbox.failure)
        handler = type("Handler", (_Handler,), {"readiness": readiness, "registry": registry})
        try:
            self._server = ThreadingHTTPServer((settings.host, settings.port), handler)
        except OSError as error:
            raise ServiceError(
                f"cannot serve on {settings.host}:{settings.port}: {error.strerror}"
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._sandbox.start()
        if port_file := os.environ.get("PLUMBLINE_PORT_FILE"):
            write_text(Path(port_file), f"{self._server.server_port}\n")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    readiness: Readiness
    registry: CollectorRegistry

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._answer(200, {"status": "alive"})
        elif self.path == "/readyz":
            self._ready()
        elif self.path == "/metrics":
            self._send(200, CONTENT_TYPE_LATEST, generate_latest(self.registry))
        else:
            self._answer(404, {"error": "not found"})

    def log_message(self, format: str, *args: object) -> None:
        """Do not log the requests of probes."""

    def _ready(self) -> None:
        if reason := self.readiness.trouble():
            self._answer(503, {"ready": False, "reason": reason})
        else:
            self._answer(200, {"ready": True})

    def _answer(self, status: int, document: dict[str, object]) -> None:
        self._send(status, "application/json", json.dumps(document).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class SandboxWatch:
    """Checks the given sandboxes in the background, on a daemon thread: a name lookup may be slow.

    ``failure`` is the reason why none of them responds; None where one does, and where none is
    given because runs name their own. Times are seconds.
    """

    def __init__(self, urls: Sequence[str], *, interval: float = 5.0, timeout: float = 2.0) -> None:
        self._urls = urls
        self._interval = interval
        self._timeout = timeout
        self.failure = "the sandbox has not responded yet" if urls else None

    def start(self) -> None:
        if self._urls:
            threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        pause = threading.Event()
        while True:
            self.failure = self._check()
            pause.wait(self._interval)

    def _check(self) -> str | None:
        failure = ""
        for url in self._urls:
            try:
                with urllib.request.urlopen(f"{url}/v1/ping", timeout=self._timeout):
                    return None
            except (OSError, http.client.HTTPException, ValueError) as error:
                failure = f"no sandbox answers, tried {', '.join(self._urls)}: {error}"
        return failure


class JudgeMetrics:
    """Counters of one worker process, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._samples = Counter(
            "plumbline_judge_samples",
            "Samples judged, by status.",
            ["status"],
            registry=self.registry,
        )
        self._requests = Counter(
            "plumbline_judge_sandbox_requests",
            "Requests made to the sandbox, failed ones included.",
            registry=self.registry,
        )
        self._busy = Counter(
            "plumbline_judge_busy_seconds", "Seconds spent judging.", registry=self.registry
        )
        self._confirmations = Counter(
            "plumbline_judge_timeout_confirmations",
            "Cases run a second time because load may have been why they took too long.",
            ["outcome"],
            registry=self.registry,
        )
        self.judged = 0

    def count(self, verdict: Verdict, seconds: float) -> None:
        self.judged += 1
        self._samples.labels(verdict.final_status.value).inc()
        self._requests.inc(verdict.attempts)
        self._confirmations.labels("flipped").inc(verdict.flipped)
        self._confirmations.labels("confirmed").inc(verdict.confirmed - verdict.flipped)
        self._busy.inc(seconds)
