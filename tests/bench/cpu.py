"""CPU time of a server and of everything that it starts, ended processes included.

Measured by a control group (v2) of its own where this user may make one. Otherwise it is the sum
over the processes that are there now, each with the children that it waited for.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

CpuSeconds = Callable[[], float]


@contextmanager
def metered(pid: int) -> Iterator[CpuSeconds]:
    """Yield a function that returns the CPU seconds of a process and its descendants so far.

    Only differences between two calls count: what was used before may be missing.
    """
    group = _new_group()
    if group is None:
        yield lambda: _of_tree(pid)
        return
    for member in _tree(pid):
        _move(member.pid, group)
    try:
        yield lambda: _of_group(group)
    finally:
        for left in (group / "cgroup.procs").read_text().split():
            _move(int(left), group.parent)
        with suppress(OSError):  # a process that just started; an empty folder in memory remains
            group.rmdir()


def has_groups() -> bool:
    """Whether this user may make control groups."""
    group = _new_group()
    if group is None:
        return False
    group.rmdir()
    return True


def _new_group() -> Path | None:
    parent = _own_group()
    if parent is None:
        return None
    group = parent / f"plumbline-bench-{os.getpid()}-{time.monotonic_ns()}"
    try:
        group.mkdir()
    except OSError:
        return None
    return group


def _own_group() -> Path | None:
    """This process's own group of version 2."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    roots = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    own = [line.removeprefix("0::") for line in groups if line.startswith("0::")]
    return Path(roots[0]) / own[0].lstrip("/") if roots and own else None


def _move(pid: int, group: Path) -> None:
    with suppress(ProcessLookupError):
        (group / "cgroup.procs").write_text(str(pid))


def _of_group(group: Path) -> float:
    used = (group / "cpu.stat").read_text().split()
    return int(used[used.index("usage_usec") + 1]) / 1e6


def _of_tree(pid: int) -> float:
    total = 0.0
    for member in _tree(pid):
        with suppress(psutil.NoSuchProcess):
            times = member.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _tree(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]
