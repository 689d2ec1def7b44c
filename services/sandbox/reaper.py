"""Ends what a run leaves behind: orphans that left its process group, and zombies.

The server is the "subreaper" of its descendants: a process whose parent dies becomes the server's
child and not that of process 1, so nothing escapes by forking twice. Which run an orphan belongs to
is seen by its session, its user, or the run's folder in its environment. One that sheds all three
(possible only without isolation) is ended when no other run is active.
"""

import asyncio
import ctypes
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from shared.service.logs import get_logger

PR_SET_CHILD_SUBREAPER = 36
GIVE_UP_SECONDS = 5.0
PAUSE_SECONDS = 0.0005

log = get_logger(__name__)


@dataclass(frozen=True)
class Run:
    """One running command: its first process, its folder, and its user if it has one alone."""

    pid: int
    folder: Path
    uid: int | None


@dataclass(frozen=True)
class _Orphan:
    pid: int
    state: str
    session: int


class Reaper:
    def __init__(self) -> None:
        self._active: dict[int, Run] = {}
        # What is there before the first run is none of its: a host process may have children.
        self._before = frozenset(_children())
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            log.warning("no_subreaper", error=os.strerror(ctypes.get_errno()))

    def add(self, run: Run) -> None:
        self._active[run.pid] = run

    def kill_group(self, run: Run) -> None:
        """Kill the run's process group; its first process is not reaped yet, so the id is ours."""
        try:
            os.killpg(run.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    async def finish(self, run: Run) -> None:
        """Return once nothing of ``run`` is left; its first process is reaped by its owner."""
        self._active.pop(run.pid, None)
        deadline = asyncio.get_running_loop().time() + GIVE_UP_SECONDS
        while self._sweep(run):
            if asyncio.get_running_loop().time() > deadline:
                log.error("processes_left", folder=str(run.folder))
                return
            await asyncio.sleep(PAUSE_SECONDS)

    def _sweep(self, run: Run) -> bool:
        """Kill and reap what belongs to ``run``; whether any of it was still there."""
        found = False
        for orphan in self._orphans():
            if orphan.state == "Z":
                _reap(orphan.pid)
            elif self._belongs(orphan, run):
                _kill(orphan.pid)
            else:
                continue
            found = True  # its children become ours only now: look again
        return found

    def _belongs(self, orphan: _Orphan, run: Run) -> bool:
        if not self._active or orphan.session == run.pid:
            return True
        try:
            if run.uid is not None and Path(f"/proc/{orphan.pid}").stat().st_uid == run.uid:
                return True
            environment = Path(f"/proc/{orphan.pid}/environ").read_bytes()
        except OSError:
            return False  # gone meanwhile, or another user's
        return f"HOME={run.folder}".encode() in environment.split(b"\0")

    def _orphans(self) -> list[_Orphan]:
        """Children of the server that it did not start: none of them is in its own session."""
        own_session = os.getsid(0)
        orphans = []
        for pid in _children():
            if pid in self._active or pid in self._before:
                continue
            orphan = _look_at(pid)
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
    # A kernel without CONFIG_PROC_CHILDREN: every process has to be asked for its parent.
    own = os.getpid()
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _stat_fields(pid)[1:2] == [str(own)]]


def _look_at(pid: int) -> _Orphan | None:
    fields = _stat_fields(pid)
    return _Orphan(pid, fields[0], int(fields[3])) if fields else None


def _stat_fields(pid: int) -> list[str]:
    """State, parent, group, session …: what follows the name, which may hold anything itself."""
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
