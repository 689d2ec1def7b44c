"""Clocks of the CPU time of a case with all its processes.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import os
import time

from shared.harness.cases.processes import children, clock_of, seconds, stat_of

# CPU seconds that the kernel's figures in clock ticks, and in groups of processes, may lack.
TICKS_SLACK = 0.02


class CaseClock:
    """CPU seconds of a case: of its process, and of everything that this has started.

    What the zygote reports at the end lacks the time of children that nobody waited for: the kernel
    forgets it if their parent ignores their end (SIGCHLD).
    """

    def __init__(self, zygote: int) -> None:
        self.zygote = zygote
        self.cpus = len(os.sched_getaffinity(0))
        # Seconds of a child of the supervisor that is no part of the tree: the tests' process.
        self.beside = 0.0

    def close(self) -> None:
        """Close what the clock reads, in a process that does not need it."""

    def start(self, now: float) -> None:
        """Begin with a new case."""
        raise NotImplementedError

    def used(self, waited: float) -> float:
        """Return the seconds so far; for ``waited`` of them the zygote has waited."""
        raise NotImplementedError

    def unwaited(self, reported: float) -> float:
        """Return the seconds that ``reported``, the zygote's figure at the end, lacks."""
        raise NotImplementedError

    def pause(self, left: float) -> float:
        """Return the seconds until all processors together may have used the CPU seconds left."""
        return max(0.02, left / self.cpus)


class GroupClock(CaseClock):
    """Clock that reads a control group of supervisor, zygote and cases: nothing escapes it."""

    def __init__(self, zygote: int, group: int) -> None:
        super().__init__(zygote)
        self.group = group
        self.base = 0.0

    def close(self) -> None:
        os.close(self.group)

    def start(self, now: float) -> None:
        self.base = self.now()

    def used(self, waited: float) -> float:
        return self.now() - self.base

    def unwaited(self, reported: float) -> float:
        missing = self.used(reported) - reported
        return missing if missing > TICKS_SLACK else 0.0

    def now(self) -> float:
        own = time.process_time() + (clock_of(self.zygote) or 0.0)
        return group_seconds(os.pread(self.group, 256, 0)) - own - self.beside


class TreeClock(CaseClock):
    """Clock that adds up the descendants of the zygote, which adopts orphans.

    It misses the children that have ended and that nobody waited for. Without a control group the
    kernel forgets them, and the wall-clock limit bounds them.
    """

    def start(self, now: float) -> None:
        pass

    def used(self, waited: float) -> float:
        return waited + tree_seconds(self.zygote)

    def unwaited(self, reported: float) -> float:
        return 0.0


def tree_seconds(parent: int) -> float:
    """Return the CPU seconds of a process's descendants, with the dead ones that they reaped."""
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


def group_seconds(text: bytes) -> float:
    """Return the seconds in a control group's ``cpuacct.usage`` or ``cpu.stat``."""
    if text.startswith(b"usage_usec "):
        return int(text.split()[1]) / 1e6
    return int(text) / 1e9
