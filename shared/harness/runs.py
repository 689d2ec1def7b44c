"""Runs: the processes of a program, its limits, and how it ended.

It runs in the sandbox, in a slot's init (``services.sandbox.slot.init``). Standard library only.

A single run of function tests has the answer in one child of the init, its tests in another. Each
arrives in a descriptor that its process alone reads: the init has neither in its memory, which the
next program inherits. It starts both, measures them, and notices their end; the tests report into a
file. Between the two are a pipe with calls and one with replies. Several runs of one answer have a
supervisor and a zygote (``function_case``), which compiles it once.

The limits apply to both processes and to all that the answer starts, together. Compiling the answer
and loading its modules has its own limit of time, and counts towards no other.
"""

from __future__ import annotations

import json
import math
import os
import resource
import select
import struct
import time

from shared.harness import function_server, function_tester
from shared.harness.cases import processes, syscalls, zygote
from shared.harness.cases.folders import CaseFolder, write_all
from shared.harness.cases.program import Program
from shared.harness.cases.supervisor import STRETCH
from shared.harness.function_case import limit_tester

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

# Exit code of an answer's process whose source does not compile.
NOT_COMPILED = 65
# User and system seconds of the answer when it is about to start, and the clock's time then.
READY = struct.Struct("ddd")
# More than the number of any descriptor of the parent.
HIGHEST = 1024
# Seconds until processes that do not die make the slot unclean.
SWEEP_SECONDS = 5.0


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

    def sweep(self, wake: int, everything: bool) -> bool:
        """Kill and reap all children; returns whether none is left.

        Args:
            wake: Descriptor that a child's end makes readable.
            everything: Whether this is the first process of a namespace: it kills all others.
        """
        give_up = time.monotonic() + SWEEP_SECONDS
        while True:
            if everything:
                processes.kill(os.kill, -1, syscalls.SIGKILL)
            else:
                for number in (syscalls.SIGSTOP, syscalls.SIGKILL):
                    for child in processes.children():
                        processes.kill(os.kill, child, number)
            if not self.reap():
                drain(wake)
                return True
            left = give_up - time.monotonic()
            if left <= 0:
                return False
            select.select([wake], [], [], min(left, 0.01))
            drain(wake)


def drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        return


class Run:
    """A run, whose first process is ``pid``.

    Attributes:
        full: Whether more was printed than may be.
        quiet: Whether its descriptors are waited for, instead of looked at a little later.
    """

    full, quiet = False, True

    def __init__(self, limit: float, ended: Ended) -> None:
        self.began = time.monotonic()
        self.limit = limit
        self.ended = ended
        self.pid = 0

    def readers(self) -> list[int]:
        return []

    def writers(self) -> list[int]:
        return []

    def move(self) -> None:
        """Do what the descriptors are ready for, without waiting."""

    def left(self, now: float) -> float:
        """Return the seconds until the next look at the limits; 0 or less if one is exceeded."""
        return self.began + self.limit - now

    def has_ended(self) -> bool:
        return self.pid in self.ended.codes

    def is_stopped(self) -> bool:
        """Whether an answer has stopped what should stop it."""
        return False

    def close_given(self) -> None:
        """Close what only the processes of the run need, once they are started."""

    def stop(self) -> None:
        """Stop what must not see the others die; all processes are killed afterwards."""

    def close(self) -> None:
        """Close what this process has of the run, whose processes are dead."""

    def result(self, reason: str) -> dict[str, Any]:
        """Return the result for the server, besides the reason for the end."""
        return {"status": self.ended.codes.get(self.pid) if reason == "ended" else None}


class Functions(Run):
    """One run of an answer's tests.

    Args:
        limits: Limits of a case, by the names of ``wire.CaseLimits``.
        answer: Descriptor to read: the size of the answer in a line, the answer, its prelude.
        report: Descriptor of the file for the report of the tests or the compiler.
        tests: Returns the tests, as ``function_tester.run`` expects them; called in their process.
        folder: Folder of the answer, which is made here.
        ended: The children that have ended.
        leave: Makes a fork of the parent an ordinary process with its own session.

    Attributes:
        extra_memory: Bytes of modules that only the tests use, in the answer's memory too.
    """

    extra_memory = 0

    def __init__(
        self,
        limits: dict[str, Any],
        answer: int,
        report: int,
        tests: Callable[[], bytes],
        folder: str,
        ended: Ended,
        leave: Callable[[], None],
    ) -> None:
        super().__init__(math.inf, ended)
        self.limits = limits
        self.source, self.report, self.tests = answer, report, tests
        self.folder = folder
        self.leave = leave
        self.calls, self.results, self.ready = os.pipe(), os.pipe(), os.pipe()
        os.set_blocking(self.ready[0], False)
        self.tester = 0
        self.compiled: str | None = None
        self.exceeded: str | None = None
        self.started = self.finished = self.began
        self.compiling = 0.0, 0.0  # user and system seconds
        self.look = math.inf  # when the limits have to be looked at
        self.delays = [0.0, 0.0]

    def start(self, confinement: syscalls.Confinement) -> Program | None:
        """Start the answer; returns its program in the new process."""
        self.pid = syscalls.fork()
        if self.pid == 0:
            try:
                return self.become_answer(confinement)
            except BaseException:
                os._exit(1)
        for fd in (self.calls[0], self.results[1], self.ready[1]):
            os.close(fd)
        return None

    # In the parent

    def readers(self) -> list[int]:
        return [self.ready[0]] if self.compiled is None else []

    def move(self) -> None:
        """Start the tests once the answer is ready."""
        if self.compiled is not None:
            return
        try:
            times = os.read(self.ready[0], READY.size)
        except BlockingIOError:
            return
        if not times:
            self.compiled = "lost"  # or rejected, as the exit code will tell
            self.started = time.monotonic()
            return
        self.compiled = "ok"
        *compiling, self.started = READY.unpack(times)
        self.compiling = compiling[0], compiling[1]
        self.look = self.started + processes.pause(self.limits["cpu"])
        self.tester = syscalls.fork()
        if self.tester == 0:
            try:
                self.run_tests()
            finally:
                os._exit(1)

    def has_ended(self) -> bool:
        return self.compiled is not None and (self.tester or self.pid) in self.ended.codes

    def left(self, now: float) -> float:
        if self.compiled is None:
            left: float = self.began + self.limits["compile"] - now
            if left > 0:
                return left
            self.move()  # it may be ready since this process had no processor
            if self.compiled is None:
                self.compiled, self.started = "timeout", now
                return 0.0
        if not self.tester or self.tester in self.ended.codes:
            return math.inf
        if now >= self.look:
            for place, pid in enumerate((self.pid, self.tester)):
                self.delays[place] = max(self.delays[place], processes.run_delay_of(pid))
            wall = self.limits["wall"]
            left = self.started + wall + min(sum(self.delays), (STRETCH - 1) * wall) - now
            unused = self.limits["cpu"] - self.used()
            if unused <= 0 or left <= 0:
                self.exceeded = "cpu" if unused <= 0 else "wall"
                return 0.0
            self.look = now + min(processes.pause(unused), left)
        return self.look - now

    def used(self) -> float:
        """Return the CPU seconds of all processes so far."""
        ended = self.ended.user + self.ended.system
        return ended + processes.tree_seconds(os.getpid()) - sum(self.compiling)

    def stop(self) -> None:
        """Kill both: the tests first, which would find an answer that has died wrong."""
        self.finished = time.monotonic()
        for pid in (self.tester, self.pid):
            if pid and pid not in self.ended.codes:
                processes.kill_group(pid)

    def close(self) -> None:
        for fd in (self.calls[1], self.results[0], self.ready[0]):
            os.close(fd)

    def result(self, reason: str) -> dict[str, Any]:
        """Return the fields of ``wire.FunctionResult``."""
        codes, ended = self.ended.codes, self.ended
        if self.compiled == "lost" and codes.get(self.pid) == NOT_COMPILED:
            self.compiled = "error"
        user = ended.user - self.compiling[0]
        case = {
            "compiled": self.compiled,
            "compile_seconds": self.started - self.began,
            "answer": codes.get(self.pid),
            "tester": codes.get(self.tester),
            "cpu": user + ended.system - self.compiling[1],
            "user": user,
            "wall": self.finished - self.started,
            "memory": ended.memory.get(self.pid, 0) * 1024,
            "limit": self.exceeded,
        }
        return {"status": None, "case": case}

    # In the children

    def become_answer(self, confinement: syscalls.Confinement) -> Program:
        self.leave()
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, syscalls.SIGKILL)
        confinement.enter_program(self.folder)
        confinement.fix_attributes()
        with open(self.source, "rb") as file:
            source = file.read(int(file.readline()))
            prelude: str = json.loads(file.read())
        case = CaseFolder(self.folder, "python", source, None)
        case.restore()
        os.chdir(case.path)
        try:
            code = zygote.compile_answer(source, "<answer>")
        except zygote.SourceError as error:
            write_all(self.report, error.text)
            os._exit(NOT_COMPILED)
        before = prelude.encode("utf-8", "replace")
        zygote.load_modules(source, before)
        program = Program(code, case.program, streams=False)
        program.serve(function_server, before, source)
        self.begin()
        return program

    def begin(self) -> None:
        """Let the limits hold, and have the tests started."""
        names = ("cpu", "memory", "output", "processes")
        cpu, memory, output, tasks = (self.limits[name] for name in names)
        if memory > 0:
            memory += self.extra_memory
        if tasks > 0:
            tasks += processes.tasks_of_user()  # without the tests, which come later
        for kind, value in zygote.case_limits(cpu + time.process_time(), memory, output, tasks):
            resource.setrlimit(kind, value)
        used = resource.getrusage(resource.RUSAGE_SELF)
        os.write(self.ready[1], READY.pack(used.ru_utime, used.ru_stime, time.monotonic()))
        os.closerange(3 + zygote.keep([self.calls[0], self.results[1]]), HIGHEST)
        syscalls.scope_signals()
        syscalls.prctl(
            syscalls.PR_SET_PDEATHSIG, syscalls.SIGKILL
        )  # undone by the change of the user
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        syscalls.renew()

    def run_tests(self) -> NoReturn:
        self.leave()
        os.chdir(self.folder + "/case")
        limit_tester(self.limits["cpu"], self.limits["memory"])
        payload = self.tests()
        calls, replies, report = range(3, 6)
        zygote.keep([self.calls[1], self.results[0], self.report])
        os.closerange(report + 1, HIGHEST)
        function_tester.run(calls, replies, report, payload, self.pid)
        os._exit(0)
