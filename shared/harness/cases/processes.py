"""Processes of cases: as ``/proc`` shows them, their CPU time, signals to them.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import os
import time

from shared.harness.cases.syscalls import SIGKILL

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable

RUNNABLE_STATES = ([b"R"], [b"D"])


def kill(how: Callable[[int, int], None], pid: int, number: int) -> None:
    try:
        how(pid, number)
    except OSError:
        pass


def kill_group(pid: int) -> None:
    kill(os.killpg, pid, SIGKILL)
    kill(os.kill, pid, SIGKILL)


def exit_code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def tasks_of_user() -> int:
    """Count the visible threads of this user: RLIMIT_NPROC counts all of them."""
    user, count = os.getuid(), 0
    for pid in processes():
        try:
            if os.stat("/proc/%d" % pid).st_uid == user:
                count += os.stat("/proc/%d/task" % pid).st_nlink - 2
        except OSError:
            pass
    return count


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children(pid: int | None = None) -> list[int]:
    """Return the children of a process, of this one by default, dead ones included."""
    if pid is None:
        pid = os.getpid()
    pids: list[int] = []
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread), "rb") as file:
                pids += [int(word) for word in file.read().split()]
    except OSError:
        if not os.path.exists("/proc/self/task/%d/children" % os.getpid()):
            # Not every kernel has this file.
            return [process for process in processes() if stat_of(process)[1:2] == [b"%d" % pid]]
    return pids


def is_runnable(pid: int) -> bool:
    return stat_of(pid)[:1] in RUNNABLE_STATES


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal."""
    return stat_of(pid)[:1] == [b"T"]


def stat_of(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/<pid>/stat``, from the state on."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def pause(unused: float) -> float:
    """Return the seconds until all processors together may have used these CPU seconds."""
    return max(0.02, unused / len(os.sched_getaffinity(0)))


def clock_of(pid: int) -> float | None:
    """Return the CPU seconds of a process with all its threads, exactly; None if unknown."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3)
    except OSError:
        return None


def seconds(ticks: list[bytes]) -> float:
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def run_delay_of(pid: int) -> float:
    """Return the seconds that the most delayed thread of a process waited for a processor."""
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return 0.0
    return max(
        (schedstat_delay("/proc/%d/task/%s/schedstat" % (pid, thread)) for thread in threads),
        default=0,
    )


def schedstat_delay(path: str) -> float:
    """Return the run delay in a ``schedstat`` file; 0 if the kernel does not record it."""
    try:
        with open(path, "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def tree_seconds(parent: int) -> float:
    """Return the CPU seconds of a process's descendants, with the dead ones that they reaped.

    The kernel forgets children that nobody waits for because their parent ignores their end
    (SIGCHLD); the wall-clock limit bounds them.
    """
    todo, used = children(parent), 0.0
    while todo:
        pid = todo.pop()
        fields = stat_of(pid)
        if fields:
            own = clock_of(pid)
            used += seconds(fields[11:13]) if own is None else own
            used += seconds(fields[13:15])  # of the children that it waited for
            todo += children(pid)
    return used
