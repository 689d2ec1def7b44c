"""Runs ``plumb`` as a subprocess, with stand-ins for the services it connects to."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: str
    stderr: str

    @property
    def line(self) -> str:
        """The only line on standard error."""
        (line,) = self.stderr.splitlines()
        return line


def plumb(*arguments: str, folder: Path, **environment: str) -> Outcome:
    """Run in ``folder`` without the settings of whoever runs the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "services.cli", *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@contextmanager
def answering(paths: dict[str, tuple[int, str]]) -> Iterator[str]:
    """An HTTP server that gives fixed answers; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = paths.get(self.path, (404, '{"detail": "Not Found"}'))
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


MODELS = {"/v1/models": (200, json.dumps({"object": "list", "data": [{"id": "coder"}]}))}
PING = {"/v1/ping": (200, '"pong"')}
