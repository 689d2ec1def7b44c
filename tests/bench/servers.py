"""Judging servers as processes on loopback: our sandbox and SandboxFusion.

A checkout of SandboxFusion has an interpreter with its dependencies in ``.venv``. It looks for a
Conda installation around its interpreter to find the one that runs programs; a folder that looks
like one gives it the interpreter that our sandbox uses.
"""

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from services.cli.embedded.services import ChildProcess, wait_until
from shared.service.processes import free_port
from tests.e2e import plumb
from tests.sandboxes import own_sandbox

CpuSeconds = Callable[[], float]
CORES = len(os.sched_getaffinity(0))
_START_SECONDS = 120.0
_PROGRAMS = Path(os.path.realpath(sys.executable))


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; ``cpu`` returns the CPU seconds of it and of all that it started."""

    url: str
    cpu: CpuSeconds


@contextmanager
def our_sandbox(folder: Path, **settings: str) -> Iterator[Server]:
    """Start this repository's sandbox, with settings for its environment."""
    folder.mkdir(parents=True, exist_ok=True)
    with own_sandbox(folder, **settings) as url:
        pid = plumb.child(os.getpid(), "services.sandbox").pid
        yield Server(url, partial(_cpu_seconds, pid))


@contextmanager
def sandbox_fusion(checkout: Path, folder: Path) -> Iterator[Server]:
    """Start SandboxFusion as its own Makefile does, with its default config (no isolation)."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = ["env", "--chdir", str(checkout), str(_python(checkout, folder)), "-m", "uvicorn"]
    command += ["sandbox.server.server:app", "--host", "127.0.0.1", "--port", str(port)]
    child = ChildProcess("sandbox-fusion", command, folder / "log", _clean(folder))
    child.start()
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(f"{url}/v1/ping"), child, _START_SECONDS)
        assert child.process is not None
        yield Server(url, partial(_cpu_seconds, child.process.pid))
    finally:
        child.stop(10)


def _cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and its descendants, with the children that they waited for."""
    process = psutil.Process(pid)
    total = 0.0
    for member in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = member.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _clean(home: Path) -> dict[str, str]:
    # Bash, which SandboxFusion starts with a socket as its input, reads the user's .bashrc then.
    return {"PATH": os.defpath, "HOME": str(home.resolve()), "LANG": "C.UTF-8"}


def _python(checkout: Path, folder: Path) -> Path:
    """The checkout's interpreter, in a folder that looks like a Conda installation."""
    environment = checkout.resolve() / ".venv"
    if not (environment / "bin/python").exists():
        raise FileNotFoundError(f"{environment} has no interpreter with the server's dependencies")
    root = folder.resolve() / "conda"
    (root / "condabin").mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin/activate").write_text(f"PATH={_PROGRAMS.parent}:$PATH\n")
    (root / "server").symlink_to(environment)
    return root / "server/bin/python"


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False
