"""Cleanup of orphans: processes and shared memory that a replica left behind, found by its tag.

Standard library only: on other machines of a cluster it runs where Plumbline may not be installed.
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path

TAG = "PLUMBLINE_REPLICA_TAG"
_SHM = Path("/dev/shm")
# Names that Python's multiprocessing gives to its shared memory and semaphores.
_OURS = re.compile(r"psm_|sem\.mp-")
_KILL_SECONDS = 10.0


def tagged_processes(tag: str) -> list[int]:
    """Processes that have inherited the tag in their environment."""
    mark = f"{TAG}={tag}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue  # another user's, or gone
            if mark in environment:
                found.append(int(entry.name))
    return found


def shared_memory(tag: str) -> list[str]:
    """Files in /dev/shm that Python's multiprocessing made for processes with the tag."""
    mapped: set[int] = set()
    for pid in tagged_processes(tag):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
            # By inode: a semaphore is mapped under a temporary name.
            mapped.update(int(line.split()[4]) for line in lines if "/dev/shm/" in line)
    found = []
    for entry in _SHM.iterdir():
        with contextlib.suppress(OSError):
            if _OURS.match(entry.name) and entry.stat().st_ino in mapped:
                found.append(str(entry))
    return sorted(found)


def sweep(tag: str, known: Iterable[str] = ()) -> tuple[int, int]:
    """Kill all processes with the tag and remove their shared memory. Idempotent.

    Args:
        tag: The replica's tag.
        known: Files to remove as well. Once a process was killed its shared memory cannot be
            found any more, so callers record it beforehand.

    Returns:
        The number of processes killed and of files removed.
    """
    files = {*known, *shared_memory(tag)}
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_SECONDS
    # Processes may have started others before they were killed.
    while (pids := tagged_processes(tag)) and time.monotonic() < deadline:
        for pid in pids:
            killed.add(pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    removed = 0
    for path in map(Path, files):
        with contextlib.suppress(OSError):
            if path.parent == _SHM and _OURS.match(path.name):
                path.unlink()
                removed += 1
    return len(killed), removed
