"""Supervisor: runs one program after another, enforces its limits, and ends all its processes.

It runs in the sandbox. Standard library and Python 3.8 syntax only. The same loop serves the cases
of an answer (``cases.answer``), function tests (``functions``) and the commands of a slot.
"""

from __future__ import annotations

import math
import os
import select
import time

from shared.harness.cases import processes
from shared.harness.cases.streams import TICK, Streams
from shared.harness.cases.syscalls import SIGKILL, SIGSTOP, fork, watch

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared.harness.cases.program import Program
    from shared.harness.cases.syscalls import Confinement

# A run's wall-clock limit excludes the time that it waited for a processor, up to a total of this
# many times the limit.
STRETCH = 5.0
# Seconds until processes that do not die make the slot unclean.
SWEEP_SECONDS = 5.0
# Grace period in seconds for processes that outlive their program. It ends early after IDLE_CHECKS
# consecutive checks, two milliseconds apart, in which no such process is runnable.
LINGER, IDLE_CHECKS = 0.25, 5


class Ended:
    """The children that have ended: exit codes, peak memory (KiB), times of all."""

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.memory: dict[int, int] = {}
        self.user = self.system = 0.0

    def reap(self) -> bool:
        """Reap all dead children; returns whether there are others."""
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return True
                self.codes[pid] = processes.exit_code(status)
                self.memory[pid] = usage.ru_maxrss
                self.user += usage.ru_utime
                self.system += usage.ru_stime
        except ChildProcessError:
            return False


class Run:
    """A run of a program, whose first process is ``pid``, with limits of all its processes.

    Args:
        wall: Wall-clock seconds from ``started``.
        ended: The children that have ended.
        cpu: CPU seconds.

    Attributes:
        full: Whether more was printed than may be.
        quiet: Whether its descriptors are waited for, instead of looked at a little later.
        watched: Descriptors that are readable when a process of the run has ended; -1 for none.
        streams: Standard streams of the run, if they are pipes.
        finished: When it was stopped.
        compiling: User and system seconds of the children that do not count.
        exceeded: The limit that is exceeded: ``cpu`` or ``wall``.
    """

    full, quiet = False, True
    streams: Streams | None = None
    exceeded: str | None = None
    compiling = 0.0, 0.0

    def __init__(self, wall: float, ended: Ended, cpu: float = math.inf) -> None:
        self.began = self.finished = time.monotonic()
        self.wall, self.cpu = wall, cpu
        self.ended = ended
        self.pid = 0
        self.watched: list[int] = []
        self.start_limits(self.began)

    def start_limits(self, now: float) -> None:
        self.started = now
        self.look = now + min(processes.pause(self.cpu), self.wall)
        self.delays = [0.0, 0.0]

    def fork(self, become: Callable[[], Program], failed: int = 1) -> Program | None:
        """Start the first process; returns in it what ``become`` returns, None in this one."""
        self.pid = fork()
        if self.pid == 0:
            try:
                return become()
            except BaseException:
                os._exit(failed)
        self.watch(self.pid)
        return None

    def watch(self, pid: int) -> None:
        """Wake the supervisor when a process of the run ends."""
        self.watched.append(watch(pid))

    def waiting(self) -> tuple[list[int], list[int]]:
        """Return the descriptors to wait for until they are readable, and writable."""
        return self.streams.waiting() if self.streams else ([], [])

    def move(self) -> None:
        """Do what the descriptors are ready for, without waiting."""
        if self.streams:
            self.streams.move()
            self.quiet, self.full = self.streams.quiet, self.streams.full

    def delayed(self) -> Sequence[int]:
        """Return at most two processes for whose waits for a processor the limit is extended."""
        return ()

    def left(self, now: float) -> float:
        """Return the seconds until the next look at the limits; 0 or less if one is exceeded."""
        if now >= self.look:
            for place, pid in enumerate(self.delayed()):
                self.delays[place] = max(self.delays[place], processes.run_delay_of(pid))
            delayed = min(sum(self.delays), (STRETCH - 1) * self.wall)
            left, unused = self.started + self.wall + delayed - now, self.cpu - self.used()
            if unused <= 0 or left <= 0:
                self.ended.reap()
                if self.has_ended():  # while this process had no processor
                    return math.inf
                self.exceeded = "cpu" if unused <= 0 else "wall"
                return 0.0
            self.look = now + min(processes.pause(unused), left)
        return self.look - now

    def has_ended(self) -> bool:
        return self.pid in self.ended.codes

    def stop(self) -> None:
        """Kill the first process, unless it has ended; the others are killed afterwards."""
        self.finished = time.monotonic()
        if self.pid not in self.ended.codes:
            processes.kill_group(self.pid)

    def close(self) -> None:
        """Close what this process has of the run, whose processes are dead."""
        for fd in self.watched:
            if fd >= 0:
                os.close(fd)
        self.watched.clear()
        if self.streams:
            self.streams.finish()
            self.full = self.streams.full

    def used(self) -> float:
        """Return the CPU seconds of all processes so far."""
        ended = self.ended.user + self.ended.system
        return ended + processes.tree_seconds(os.getpid()) - sum(self.compiling)

    def exit_code(self, pid: int) -> int:
        return self.ended.codes.get(pid, -SIGKILL)

    def measured(self) -> tuple[object, ...]:
        """Return the last words of its record.

        They are CPU, user and wall-clock microseconds, KiB of memory, the limit that it exceeded.
        """
        user = self.ended.user - self.compiling[0]
        cpu = user + self.ended.system - self.compiling[1]
        return (
            *(int(seconds * 1e6) for seconds in (cpu, user, self.finished - self.started)),
            self.ended.memory.get(self.pid, 0),
            self.exceeded or ("output" if self.full else "-"),
        )


class Supervisor:
    """Runs one program after another; the processes of each are children of this process.

    Attributes:
        folder: Folder of one answer after another.
        confinement: Restricts programs.
        others: Further descriptors that end the waiting.
    """

    folder: str
    confinement: Confinement

    others: Sequence[int] = ()

    def __init__(self) -> None:
        self.ended = Ended()

    def wait(self, run: Run) -> str:
        """Wait until a run ends, or exceeds a limit; returns which."""
        if not run.quiet:  # a short program ends before anything else has to be done
            select.select([fd for fd in run.watched if fd >= 0], [], [], TICK)
        while True:
            self.ended.reap()
            now = time.monotonic()
            left = run.left(now)
            if left <= 0:
                return "timeout"
            if run.has_ended():
                return "ended"
            reason = self.interrupt(run)
            if reason or run.full:
                return reason or "output limit"
            self.sleep(min(left, self.until_interrupt()), run)

    def interrupt(self, _run: Run) -> str | None:
        """Return a reason to end a run besides its own limits."""
        return None

    def until_interrupt(self) -> float:
        """Return the seconds until such a reason is looked for again."""
        return math.inf

    def sleep(self, seconds: float, run: Run) -> None:
        """Wait for something to do, at most ``seconds``.

        What a program prints is read a little later, so that many small prints cost little.
        """
        readers, writers = run.waiting()
        if not run.quiet or -1 in run.watched:
            readers, writers, seconds = [], [], min(seconds, TICK)
        readers += [fd for fd in (*self.others, *run.watched) if fd >= 0]
        select.select(readers, writers, [], None if seconds == math.inf else seconds)
        run.move()

    def leave(self) -> None:
        """Turn a new fork of this process into an ordinary one with its own session."""
        os.setsid()

    def linger(self, run: Run) -> None:
        """Give the processes that a program left a grace period.

        Their output belongs to the answer, and the machine's load decides whether they ran before
        the program's end.
        """
        give_up, idle = time.monotonic() + LINGER, 0
        while idle < IDLE_CHECKS and time.monotonic() < give_up and self.ended.reap():
            runnable = any(map(processes.is_runnable, processes.children()))
            idle = 0 if runnable else idle + 1
            run.move()
            time.sleep(0.002)

    def sweep(self, everything: bool = False) -> bool:
        """Kill and reap all children; returns whether none is left.

        Args:
            everything: Whether this is the first process of a namespace: it kills all others.
        """
        give_up = time.monotonic() + SWEEP_SECONDS
        while True:
            if everything:
                processes.kill(os.kill, -1, SIGKILL)
            elif self.ended.reap():
                for number in (SIGSTOP, SIGKILL):  # all of them stop first, so that none can fork
                    for child in processes.children():
                        processes.kill(os.kill, child, number)
            if not self.ended.reap():
                return True
            if time.monotonic() > give_up:
                return False
            time.sleep(0.001)
