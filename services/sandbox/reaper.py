"""Reaper of containers: waits for their end, and kills the orphans of one that was killed.

The server is the "child subreaper" of its descendants: without a process namespace the programs of
a container whose init died become children of the server, which kills them.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from shared.service.logs import get_logger

PR_SET_CHILD_SUBREAPER = 36
SWEEP_SECONDS = 30.0
PAUSE_SECONDS = 0.0005

log = get_logger(__name__)


class Reaper:
    """Tracks the live containers, and kills all orphans when one ends."""

    def __init__(self) -> None:
        self._live: set[int] = set()
        # Existing children belong to the server's process, not to a container.
        self._before = frozenset(_children())
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            log.warning("cannot become subreaper", error=os.strerror(ctypes.get_errno()))

    def add(self, pid: int) -> None:
        self._live.add(pid)

    async def end(self, pid: int, *, orphans: bool, user: int | None = None) -> None:
        """Kill a container; return once no process of it is left.

        Args:
            pid: The container's first process.
            orphans: Whether its other processes outlive it, for lack of a process namespace.
            user: The user that only its processes have, if there is one.
        """
        if orphans and user is not None:
            await asyncio.to_thread(_kill_all_of, user)
        deadline = asyncio.get_running_loop().time() + SWEEP_SECONDS
        # The group before its leader is reaped and the id is reused.
        for kill in (os.killpg, os.kill):
            _kill(kill, pid)
        while not _reaped(pid) or self._sweep(pid, orphans):
            if asyncio.get_running_loop().time() > deadline:
                log.error("processes left running", container=pid)
                break
            await asyncio.sleep(PAUSE_SECONDS)
        self._live.discard(pid)

    def _sweep(self, container: int, orphans: bool) -> bool:
        """Kill and reap what a container left; return whether there was anything."""
        own_session = os.getsid(0)
        found = False
        for pid in _children():
            if pid in self._live or pid in self._before:
                continue
            session = _session(pid)
            if session != container and not (orphans and session != own_session):
                continue
            _kill(os.kill, pid)
            _reaped(pid)
            found = True  # its children become children of the server only now: sweep again
        return found


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal."""
    return _stat_fields(pid)[:1] == ["T"]


def _children() -> list[int]:
    try:
        lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    except OSError:
        lists = []
    if lists:
        return [int(pid) for text in lists for pid in text.split()]
    # A kernel without CONFIG_PROC_CHILDREN: check the parent of every process.
    own = str(os.getpid())
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _stat_fields(pid)[1:2] == [own]]


def _session(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return int(fields[3]) if fields else None


def _stat_fields(pid: int) -> list[str]:
    """Return the fields after the command name: state, parent, group, session, …"""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _kill(how: Callable[[int, int], None], pid: int) -> None:
    try:
        how(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _kill_all_of(user: int) -> None:
    """Kill all processes of a user at once: no program forks faster than that."""
    command = ["setpriv", f"--reuid={user}", "--clear-groups", "sh", "-c", "kill -KILL -1"]
    subprocess.run(command, check=False, capture_output=True)


def _reaped(pid: int) -> bool:
    """Reap a child if it has ended; return whether it is gone."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True
