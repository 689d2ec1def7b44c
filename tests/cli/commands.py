"""Runs ``plumb`` as a subprocess, with stand-ins for the services it connects to."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.cli.fork_server import READ_AT_THE_START, ROOT, fork_server


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
    """Run in ``folder`` without the settings of the shell that runs the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    given = {**kept, "PYTHONPATH": str(ROOT), **environment}
    if not any(name.startswith(READ_AT_THE_START) for name in environment):
        return Outcome(*fork_server().run(list(arguments), folder, given, seconds=60))
    done = subprocess.run(
        [sys.executable, "-m", "services.cli", *arguments],
        cwd=folder, env=given, capture_output=True, text=True, errors="replace", timeout=180,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


def in_terminal(*arguments: str, folder: Path, columns: int, **environment: str) -> str:
    """Run in a terminal of so many columns; returns what it showed, its colours included."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 100, columns, 0, 0))
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    given = {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", "LANG": "C.UTF-8", **environment}
    with subprocess.Popen(
        [sys.executable, "-m", "services.cli", *arguments],
        cwd=folder, env=given, stdin=theirs, stdout=theirs, stderr=theirs,
    ):  # fmt: skip
        os.close(theirs)
        shown = b""
        while part := _read(ours):
            shown += part
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's way to say that the other end is closed
        return b""


@contextmanager
def answering(paths: dict[str, tuple[int, str]]) -> Iterator[str]:
    """An HTTP server that gives fixed answers; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = paths.get(self.path, (404, '{"detail": "Not Found"}'))
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

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
