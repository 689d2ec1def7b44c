"""Reaper of containers: waits for their end, and kills the orphans of one that was killed.

The server is the "child subreaper" of its descendants: without a process namespace the programs of
a container whose init died become children of the server, which kills them.
"""

import asyncio
import os
import signal
import subprocess

from shared.harness.cases import processes, syscalls
from shared.service.logs import get_logger

SWEEP_SECONDS = 30.0
PAUSE_SECONDS = 0.0005

log = get_logger(__name__)


class Reaper:
    """Tracks the live containers, and kills all orphans when one ends."""

    def __init__(self) -> None:
        self._live: set[int] = set()
        # Existing children belong to the server's process, not to a container.
        self._before = frozenset(processes.children())
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)

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
        processes.kill_group(pid)
        while not _reaped(pid) or self._sweep(pid, orphans):
            if asyncio.get_running_loop().time() > deadline:
                log.error("processes left running", container=pid)
                break
            await asyncio.sleep(PAUSE_SECONDS)
        self._live.discard(pid)

    def _sweep(self, container: int, orphans: bool) -> bool:
        """Kill and reap what a container left; return whether there was anything."""
        own_session = os.getsid(0)
        swept = False
        for pid in processes.children():
            if pid in self._live or pid in self._before:
                continue
            session = next(map(int, processes.stat_of(pid)[3:4]), None)
            if session != container and not (orphans and session != own_session):
                continue
            processes.kill(os.kill, pid, signal.SIGKILL)
            _reaped(pid)
            swept = True  # its children become children of the server only now: sweep again
        return swept


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
