"""``/healthz``, ``/readyz`` and ``/metrics`` of a worker, beside its one job at a time."""

import json
import os
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry
from prometheus_client.exposition import generate_latest
from redis import Redis

from services.judge.sandbox_watch import SandboxWatch
from services.judge.settings import JudgeSettings
from shared.errors import ServiceError
from shared.files import write_text
from shared.ledger import ping_error
from shared.readiness import Readiness


class HealthServer:
    """Serves on a thread; ``ready`` means that Redis answers, and one of the given sandboxes."""

    def __init__(self, settings: JudgeSettings, redis: Redis, registry: CollectorRegistry) -> None:
        """Bind the port.

        Raises:
            ServiceError: It cannot be bound.
        """
        self._sandbox = SandboxWatch(settings.sandboxes)
        readiness = Readiness(partial(ping_error, redis), lambda: self._sandbox.trouble)
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
        """Requests of probes are not worth a line."""

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
