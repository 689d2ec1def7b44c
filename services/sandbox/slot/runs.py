"""Runs of a slot's init: the processes of a program, its limits, and how it ended.

It runs in the sandbox, in the slot's init. Standard library only.

Function tests run the answer in one child of the init, its tests in another. Each arrives in a
descriptor that its process alone reads: the init has neither in its memory, which the next program
inherits. It starts both, measures them, and notices their end; what the tests report goes to the
server in a file.

The limits apply to both processes and to all that the answer starts, together. Compiling the answer
and loading its modules has its own limit of time, and counts towards no other.
"""

from __future__ import annotations

import json
import math
import os
import resource
import struct
import time

from shared.harness import function_server, function_tester
from shared.harness.cases import processes, syscalls, zygote
from shared.harness.cases.folders import write_all
from shared.harness.cases.program import Program
from shared.harness.cases.supervisor import STRETCH
from shared.harness.function_case import limit_tester

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

# Exit code of an answer's process whose source does not compile.
NOT_COMPILED = 65
# User and system seconds of the answer when it is about to start, and the clock's time then.
READY = struct.Struct("ddd")
# More than the number of any descriptor of the init.
HIGHEST = 1024


class Ended:
    """The children of the init that have ended: exit codes, peak memory (KiB), times of all."""

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
    """A run, whose first process is ``pid``.

    Attributes:
        full: Whether more was printed than may be.
        quiet: Whether its descriptors are waited for, instead of looked at a little later.
    """

    full, quiet = False, True

    def __init__(self, limit: float | None, ended: Ended) -> None:
        self.began = time.monotonic()
        self.limit = math.inf if limit is None else limit
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
        """Return what the server wants to know besides the reason for the end."""
        return {"status": self.ended.codes.get(self.pid) if reason == "ended" else None}


class Functions(Run):
    """One run of an answer's tests.

    Args:
        order: The order, with the limits of the run.
        fds: The answer, its tests, and the file for their report.
        folder: Folder of the answer, which is made here.
        group: Descriptor of the usage of the slot's control group, if it has one.
        ended: The children of the init that have ended.
        leave: Makes a fork of the init an ordinary process.

    Attributes:
        extra_memory: Bytes of modules that only the tests use, in the answer's memory too.
    """

    extra_memory = 0

    def __init__(
        self,
        order: dict[str, Any],
        fds: list[int],
        folder: str,
        group: int | None,
        ended: Ended,
        leave: Callable[[], None],
    ) -> None:
        super().__init__(None, ended)
        self.limits: dict[str, Any] = order["case_limits"]
        self.source, self.tests, self.report = fds
        self.folder, self.case = folder, folder + "/case"
        for path in (self.folder, self.case):
            os.mkdir(path, 0o700)
        self.group = group
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
        self.base = self.group_seconds()

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

    # In the init

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
        self.look = self.started + self.pause(self.limits["cpu"])
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
            self.look = now + min(self.pause(unused), left)
        return self.look - now

    @staticmethod
    def pause(unused: float) -> float:
        """Return the seconds until all processors together may have used these CPU seconds."""
        return max(0.02, unused / len(os.sched_getaffinity(0)))

    def used(self) -> float:
        """Return the CPU seconds of all processes so far."""
        if self.group is not None:
            used = self.group_seconds() - self.base
        else:
            used = self.ended.user + self.ended.system + processes.tree_seconds(os.getpid())
        return used - sum(self.compiling)

    def group_seconds(self) -> float:
        """Return the CPU seconds of the control group but for the init, if there is one."""
        if self.group is None:
            return 0.0
        return processes.group_seconds(os.pread(self.group, 256, 0)) - time.process_time()

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
        codes, ended = self.ended.codes, self.ended
        if self.compiled == "lost" and codes.get(self.pid) == NOT_COMPILED:
            self.compiled = "error"
        user = ended.user - self.compiling[0]
        cpu = user + ended.system - self.compiling[1]
        missing = self.used() - cpu  # of children that nobody waited for
        if missing > processes.TICKS_SLACK:
            user, cpu = user + missing, cpu + missing
        case = {
            "compiled": self.compiled,
            "compile_seconds": self.started - self.began,
            "answer": codes.get(self.pid),
            "tester": codes.get(self.tester),
            "cpu": cpu,
            "user": user,
            "wall": self.finished - self.started,
            "memory": ended.memory.get(self.pid, 0) * 1024,
            "limit": self.exceeded,
        }
        return {"status": None, "case": case}

    # In the children

    def become_answer(self, confinement: syscalls.Confinement) -> Program:
        self.leave()
        os.chdir(self.case)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, syscalls.SIGKILL)
        confinement.enter_program(self.folder)
        confinement.fix_attributes()
        with open(self.source, "rb") as file:
            source = file.read(int(file.readline()))
            prelude: str = json.loads(file.read())
        with open("solution.py", "wb") as file:
            file.write(source)
        try:
            code = zygote.compile_answer(source, "<answer>")
        except zygote.SourceError as error:
            write_all(self.report, error.text)
            os._exit(NOT_COMPILED)
        before = prelude.encode("utf-8", "replace")
        zygote.load_modules(source, before)
        program = Program(code, self.case + "/solution.py", streams=False)
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
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        syscalls.renew()

    def run_tests(self) -> NoReturn:
        self.leave()
        os.chdir(self.case)
        limit_tester(self.limits["cpu"], self.limits["memory"])
        kept = zygote.keep([self.calls[1], self.results[0], self.report, self.tests])
        os.closerange(3 + kept, HIGHEST)
        calls, results, report, tests = range(3, 3 + kept)
        payload = os.pread(tests, os.fstat(tests).st_size, 0)
        function_tester.run(calls, results, report, payload, lambda: self.pid)
        os._exit(0)
