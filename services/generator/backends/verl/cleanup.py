"""A replica's processes on one machine, found by the replica's tag: engines that died, orphans.

It uses the standard library only, because it also runs on machines without Plumbline.
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

TAG = "PLUMBLINE_REPLICA_TAG"
_SHM = Path("/dev/shm")
# Names of shared memory and semaphores of Python's multiprocessing.
_MULTIPROCESSING_NAMES = re.compile(r"psm_|sem\.mp-")
_KILL_SECONDS = 10.0
# The titles that vLLM and SGLang give to the processes without which they generate nothing.
_ENGINE_TITLE = re.compile(rb"(?:VLLM|sglang)::")


def tagged_processes(tag: str) -> list[int]:
    """Find the processes that have inherited the tag in their environment."""
    mark = f"{TAG}={tag}".encode()
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue  # another user's process, or it has exited
            if mark in environment:
                pids.append(int(entry.name))
    return pids


def engine_processes(tag: str) -> dict[int, str]:
    """Find the engine's own processes: the start time of each, by process id."""
    start_times = {}
    for pid in tagged_processes(tag):
        with contextlib.suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
            if _ENGINE_TITLE.match(title) and (began := _began(pid)):
                start_times[pid] = began
    return start_times


def ended(processes: Mapping[int, str]) -> list[int]:
    """Return those of :func:`engine_processes` that have ended, reaped or not."""
    return [pid for pid, began in processes.items() if _began(pid) != began]


def _began(pid: int) -> str:
    """The start time of a live process in clock ticks since boot; empty if there is none."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    # The second field is the name in brackets, which may contain anything.
    fields = status.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]


def shared_memory(tag: str) -> list[str]:
    """Find the multiprocessing files in /dev/shm that processes with the tag have mapped."""
    mapped: set[int] = set()
    for pid in tagged_processes(tag):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
            # By inode: a semaphore is mapped under a temporary name.
            mapped.update(int(line.split()[4]) for line in lines if "/dev/shm/" in line)
    paths = []
    for entry in _SHM.iterdir():
        with contextlib.suppress(OSError):
            if _MULTIPROCESSING_NAMES.match(entry.name) and entry.stat().st_ino in mapped:
                paths.append(str(entry))
    return sorted(paths)


def sweep(tag: str, recorded: Iterable[str] = ()) -> tuple[int, int]:
    """Kill all processes with the tag and remove their shared memory. Idempotent.

    The shared memory of a killed process cannot be found again, so callers record it beforehand.
    Returns the number of processes killed and of files removed.
    """
    files = {*recorded, *shared_memory(tag)}
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_SECONDS
    # Repeat: a process may have started others before it was killed.
    while (pids := tagged_processes(tag)) and time.monotonic() < deadline:
        for pid in pids:
            killed.add(pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    removed = 0
    for path in map(Path, files):
        with contextlib.suppress(OSError):
            if path.parent == _SHM and _MULTIPROCESSING_NAMES.match(path.name):
                path.unlink()
                removed += 1
    return len(killed), removed
