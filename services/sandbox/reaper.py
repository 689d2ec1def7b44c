"""Orphan reaper: kill the processes that a run leaves behind, and reap zombies.

The server is the "child subreaper" of its descendants: a process whose parent dies becomes a child
of the server instead of process 1, so no process escapes by forking twice. An orphan is assigned to
a run by its session, its user, or the run's folder in its environment. An orphan that changed all
three (possible only without isolation) is killed when no other run is active.
"""

import asyncio
import ctypes
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from shared.service.logs import get_logger

PR_SET_CHILD_SUBREAPER = 36
SWEEP_SECONDS = 5.0
PAUSE_SECONDS = 0.0005

log = get_logger(__name__)


@dataclass(frozen=True)
class ActiveRun:
    """A running command: its first process, its folder, and the user reserved for it, if any."""

    pid: int
    folder: Path
    uid: int | None


@dataclass(frozen=True)
class _Orphan:
    pid: int
    state: str
    session: int


class Reaper:
    """Tracks the active runs, and kills the orphans of each finished run."""

    def __init__(self) -> None:
        self._active: dict[int, ActiveRun] = {}
        # Existing children belong to the server's process, not to a run.
        self._before = frozenset(_children())
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            log.warning("cannot become subreaper", error=os.strerror(ctypes.get_errno()))

    def add(self, run: ActiveRun) -> None:
        self._active[run.pid] = run

    def kill_group(self, run: ActiveRun) -> None:
        """Kill the run's process group, before its first process is reaped and the id is reused."""
        try:
            os.killpg(run.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    async def finish(self, run: ActiveRun) -> None:
        """Return once no process of ``run`` is left; the caller reaps the first process itself."""
        self._active.pop(run.pid, None)
        deadline = asyncio.get_running_loop().time() + SWEEP_SECONDS
        while self._sweep(run):
            if asyncio.get_running_loop().time() > deadline:
                log.error("processes left running", folder=str(run.folder))
                return
            await asyncio.sleep(PAUSE_SECONDS)

    def _sweep(self, run: ActiveRun) -> bool:
        """Kill and reap processes of ``run``; return whether there were any."""
        found = False
        for orphan in self._orphans():
            if orphan.state == "Z":
                _reap(orphan.pid)
            elif self._belongs(orphan, run):
                _kill(orphan.pid)
            else:
                continue
            found = True  # its children become children of the server only now: sweep again
        return found

    def _belongs(self, orphan: _Orphan, run: ActiveRun) -> bool:
        if not self._active or orphan.session == run.pid:
            return True
        try:
            if run.uid is not None and Path(f"/proc/{orphan.pid}").stat().st_uid == run.uid:
                return True
            environment = Path(f"/proc/{orphan.pid}/environ").read_bytes()
        except OSError:
            return False  # the process has ended, or belongs to another user
        return f"HOME={run.folder}".encode() in environment.split(b"\0")

    def _orphans(self) -> list[_Orphan]:
        """Return adopted children of the server; all of them are in other sessions."""
        own_session = os.getsid(0)
        orphans = []
        for pid in _children():
            if pid in self._active or pid in self._before:
                continue
            orphan = _read_orphan(pid)
            if orphan and orphan.session != own_session:
                orphans.append(orphan)
        return orphans


def _children() -> list[int]:
    try:
        lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    except OSError:
        lists = []
    if lists:
        return [int(pid) for text in lists for pid in text.split()]
    # A kernel without CONFIG_PROC_CHILDREN: check the parent of every process.
    own = os.getpid()
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _stat_fields(pid)[1:2] == [str(own)]]


def _read_orphan(pid: int) -> _Orphan | None:
    fields = _stat_fields(pid)
    return _Orphan(pid, fields[0], int(fields[3])) if fields else None


def _stat_fields(pid: int) -> list[str]:
    """Return the fields after the command name: state, parent, group, session, …"""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
