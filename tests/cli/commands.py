"""Runs ``plumb`` as a subprocess, with stand-ins for the services it connects to."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.fork_server import READ_AT_THE_START, ROOT, run_forked
from tests.sandbox_records import Answer, behaving


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
        return Outcome(*run_forked(arguments, folder, given, seconds=60))
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


def answering(paths: dict[str, tuple[int, str]]) -> AbstractContextManager[str]:
    """An HTTP server that gives fixed answers; yields its URL."""

    def behave(path: str, _body: dict[str, Any]) -> Answer:
        status, text = paths.get(path, (404, '{"detail": "Not Found"}'))
        return status, text.encode()

    return behaving(behave)


MODELS = {"/v1/models": (200, json.dumps({"object": "list", "data": [{"id": "coder"}]}))}
PING = {"/v1/ping": (200, '"pong"')}
