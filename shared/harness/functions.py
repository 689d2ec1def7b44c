"""Function tests: the processes of an answer and of its tests, their limits, and how they ended.

It runs in the sandbox. Standard library and Python 3.8 syntax only. The answer is in one child, its
tests in another. Each arrives in a file that its process alone reads: the parent, whose memory the
next program inherits, has neither. It starts both, measures them, and notices their end; the tests
report into a file. Between the two are a pipe with calls and one with replies.

The parent of a single run is a slot's init (``FunctionRun``), and its answer compiles itself.
Otherwise it is the parent of the cases of an answer, which has compiled it (``FunctionCase``). The
limits apply to both processes and to all that the answer starts, together. Compiling the answer and
loading its modules has its own limit of time, and counts towards no other.
"""

from __future__ import annotations

import math
import os
import resource
import struct
import time

from shared.harness import function_server, function_tester
from shared.harness.cases import processes, syscalls
from shared.harness.cases.answer import (
    HIGHEST,
    Cases,
    SourceError,
    become_answer,
    case_limits,
    compile_answer,
    load_modules,
)
from shared.harness.cases.files import CallSpec, CaseFolder, Records, write_all
from shared.harness.cases.program import Program
from shared.harness.cases.supervisor import Run, Supervisor
from shared.harness.languages import LANGUAGES

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from shared.harness.cases.answer import Outcome

# Exit code of an answer's process whose source does not compile.
NOT_COMPILED = 65
# User and system seconds of the answer when it is about to start, and the clock's time then.
READY = struct.Struct("ddd")
MAX_REPORT = 1 << 24


class Functions(Run):
    """A run of an answer's tests.

    Args:
        supervisor: The parent.
        spec: Specification of the call.
        tests: Descriptor, offset and size of the tests, as ``function_tester.run`` expects them.
        report: Descriptor of the file for the report of the tests or the compiler.
    """

    def __init__(
        self, supervisor: Supervisor, spec: CallSpec, tests: tuple[int, int, int], report: int
    ) -> None:
        super().__init__(spec.times["wall"], supervisor.ended, spec.times["cpu"])
        self.supervisor = supervisor
        self.spec = spec
        self.tests, self.report = tests, report
        self.calls, self.results, self.ready = os.pipe(), os.pipe(), os.pipe()
        os.set_blocking(self.ready[0], False)
        self.tester = 0
        self.compiled: str | None = None

    def start(self) -> Program | None:
        """Start the answer; returns its program in the new process."""
        program = self.fork(self.become_answer)
        if program is None:
            for fd in (self.calls[0], self.results[1], self.ready[1]):
                os.close(fd)
        return program

    # In the parent

    def waiting(self) -> tuple[list[int], list[int]]:
        return [self.ready[0]] if self.compiled is None else [], []

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
        *compiling, started = READY.unpack(times)
        self.compiling = compiling[0], compiling[1]
        self.start_tests(started)

    def start_tests(self, now: float) -> None:
        self.compiled = "ok"
        self.start_limits(now)
        self.tester = syscalls.fork()
        if self.tester == 0:
            try:
                self.run_tests()
            finally:
                os._exit(1)
        super().close()  # only the end of the tests matters from now on
        self.watch(self.tester)

    def has_ended(self) -> bool:
        return self.compiled is not None and (self.tester or self.pid) in self.ended.codes

    def left(self, now: float) -> float:
        if self.compiled is None:
            left = self.began + self.spec.times["compile"] - now
            if left > 0:
                return left
            self.move()  # it may be ready since this process had no processor
            if self.compiled is None:
                self.compiled, self.started = "timeout", now
                return 0.0
        if not self.tester or self.tester in self.ended.codes:
            return math.inf
        return super().left(now)

    def delayed(self) -> Sequence[int]:
        return self.pid, self.tester

    def stop(self) -> None:
        """Kill both: the tests first, which would find an answer that has died wrong."""
        if self.tester and self.tester not in self.ended.codes:
            processes.kill_group(self.tester)
        super().stop()

    def close(self) -> None:
        super().close()
        for fd in (self.calls[1], self.results[0], self.ready[0]):
            os.close(fd)

    def outcome(self) -> Outcome:
        """Return the record of the tests; its output is their report, which nobody reads here."""
        words = ("tests", self.exit_code(self.pid), self.exit_code(self.tester), *self.measured())
        return words, min(os.fstat(self.report).st_size, MAX_REPORT), b""

    # In the children

    def load(self) -> Program:
        """Prepare the answer's process, and return its program."""
        raise NotImplementedError

    def enter(self) -> None:
        """Let the limits of the answer hold."""
        raise NotImplementedError

    def become_answer(self) -> Program:
        """Load the answer, have the tests started, and let the limits hold."""
        self.supervisor.leave()
        program = self.load()
        used = resource.getrusage(resource.RUSAGE_SELF)
        os.write(self.ready[1], READY.pack(used.ru_utime, used.ru_stime, time.monotonic()))
        os.closerange(3 + keep([self.calls[0], self.results[1]]), HIGHEST)
        self.enter()
        return program

    def run_tests(self) -> NoReturn:
        self.supervisor.leave()
        os.chdir(self.supervisor.folder + "/case")
        limit_tester(self.cpu, self.spec.numbers["memory"])
        file, start, size = self.tests
        payload = os.pread(file, size, start)
        calls, replies, report = range(3, 6)
        keep([self.calls[1], self.results[0], self.report])
        os.closerange(report + 1, HIGHEST)
        function_tester.run(calls, replies, report, payload, self.pid)
        os._exit(0)


class FunctionRun(Functions):
    """A single run in a slot, whose init is the parent.

    Args:
        init: The parent; its folder exists, and is empty.
        spec: As of ``Functions``.
        files: Descriptors of the call, its only input, its results.
    """

    def __init__(self, init: Supervisor, spec: CallSpec, files: list[int]) -> None:
        self.call, tests, results = files
        self.records = Records(results)
        super().__init__(init, spec, (tests, 0, spec.inputs[0]), os.memfd_create("report"))

    def load(self) -> Program:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, syscalls.SIGKILL)
        folder, confinement = self.supervisor.folder, self.supervisor.confinement
        confinement.enter_program(folder)
        confinement.fix_attributes()
        with open(self.call, "rb") as file:
            file.readline()
            source, prelude = file.read(self.spec.answer), file.read()
        case = CaseFolder(folder, LANGUAGES["python"], source, None)
        case.restore()
        os.chdir(case.path)
        try:
            code = compile_answer(source, "<answer>")
        except SourceError as error:
            write_all(self.report, error.text)
            os._exit(NOT_COMPILED)
        load_modules(source, prelude)
        program = Program(code, case.program, streams=False)
        program.serve(function_server, prelude, source)
        numbers = dict(self.spec.numbers)
        if numbers["processes"] > 0:
            numbers["processes"] += processes.tasks_of_user()  # without the tests, which come later
        for kind, value in case_limits(self.cpu + time.process_time(), numbers):
            resource.setrlimit(kind, value)
        return program

    def enter(self) -> None:
        become_answer()

    def record(self) -> None:
        """Write the records of the call; none if it was stopped before it could be compiled."""
        words, size, _ = self.outcome()
        if self.compiled == "lost" and self.ended.codes.get(self.pid) == NOT_COMPILED:
            self.compiled = "error"
        seconds = int((self.started - self.began) * 1e6)
        if self.compiled == "ok":
            self.records.add("compile", "ok", seconds)
            self.records.add(words[0], 0, *words[1:], out=self.report, size=size)
            self.records.add("end", "done")
        elif self.compiled in ("error", "timeout"):
            self.records.add("compile", self.compiled, seconds, out=self.report, size=size)
            self.records.add("end", "compile")
        elif self.compiled:
            self.records.add("end", self.compiled)

    def close(self) -> None:
        super().close()
        os.close(self.report)


class FunctionCase(Functions):
    """A case of an answer that is a run of tests, which are a part of the inputs."""

    def __init__(self, cases: Cases, start: int, size: int) -> None:
        self.cases = cases
        super().__init__(cases, cases.spec, (cases.inputs, start, size), cases.printed)

    def start(self) -> Program | None:
        program = super().start()
        if program is None:
            self.start_tests(self.began)
        return program

    def load(self) -> Program:
        assert self.cases.program is not None
        return self.cases.program

    def enter(self) -> None:
        self.cases.enter_case()


def limit_tester(cpu: float, memory: int) -> None:
    """Prepare this process, a fresh fork, for tests: limits in seconds and bytes."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, syscalls.SIGKILL)
    syscalls.limit(resource.RLIMIT_CORE, 0)
    syscalls.limit(resource.RLIMIT_CPU, int(cpu) + 2)
    if memory > 0:
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            syscalls.limit(kind, memory)
    syscalls.renew()


def keep(channel: list[int]) -> int:
    """Give descriptors the first numbers after the standard streams; returns how many there are."""
    copies = [os.dup(fd) for fd in channel]  # the lowest free ones, in this order
    for place, fd in enumerate(copies):
        if fd != 3 + place:
            os.dup2(fd, 3 + place, inheritable=False)
    return len(copies)
