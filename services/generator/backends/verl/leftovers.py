"""Processes and shared memory of a replica, found by a tag that they inherit, and removed.

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
# What Python's multiprocessing calls its shared memory and its semaphores.
_OURS = re.compile(r"psm_|sem\.mp-")
_KILL_SECONDS = 10.0


def tagged(tag: str) -> list[int]:
    """Processes whose environment names the tag."""
    mark = f"{TAG}={tag}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue  # somebody else's, or gone
            if mark in environment:
                found.append(int(entry.name))
    return found


def shared_memory(tag: str) -> list[str]:
    """Files in /dev/shm that Python's multiprocessing made for processes with the tag."""
    mapped: set[int] = set()
    for pid in tagged(tag):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
            # By inode: a semaphore is mapped under a name that it had for a moment only.
            mapped.update(int(line.split()[4]) for line in lines if "/dev/shm/" in line)
    found = []
    for entry in _SHM.iterdir():
        with contextlib.suppress(OSError):
            if _OURS.match(entry.name) and entry.stat().st_ino in mapped:
                found.append(str(entry))
    return sorted(found)


def sweep(tag: str, known: Iterable[str] = ()) -> tuple[int, int]:
    """Kill what has the tag and remove its shared memory, the ``known`` files as well.

    A process that was killed before its peers no longer says which memory it had, so those who
    look in time hand that on in ``known``. Returns how many processes and files there were.
    """
    files = {*known, *shared_memory(tag)}
    killed: set[int] = set()
    give_up = time.monotonic() + _KILL_SECONDS
    # Those who were killed may have begun others meanwhile.
    while (pids := tagged(tag)) and time.monotonic() < give_up:
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
