"""Case of function tests: the answer in a child of the zygote, its tests in a process of their own.

It runs in the sandbox, in the supervisor of several cases, or of one that arrived as files. A slot
runs a single one without a supervisor (``shared.harness.runs``). Standard library and
Python 3.8 syntax only. The tester is forked from the supervisor, which forked the zygote before it
read the tests. Neither its memory nor its descriptors are within the answer's reach, as the
supervisor's are not; between the two are a pipe with calls and one with replies. The limits apply
to both processes together.
"""

from __future__ import annotations

import os
import resource
import select
import time

from shared.harness import function_tester
from shared.harness.cases.processes import clock_of, exit_code, kill_group, pause, run_delay_of
from shared.harness.cases.supervisor import REPLY_TIMEOUT_AFTER_KILL, STRETCH, ZygoteLostError
from shared.harness.cases.syscalls import PR_SET_PDEATHSIG, SIGKILL, fork, limit, prctl, renew
from shared.harness.cases.zygote import Zygote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shared.harness.cases.supervisor import Supervisor

MAX_REPORT = 1 << 24


class FunctionCase:
    """One run of an answer's tests.

    Args:
        supervisor: The supervisor of the call.
        payload: The tests, as ``function_tester.run`` expects them.
    """

    def __init__(self, supervisor: Supervisor, payload: bytes) -> None:
        self.supervisor = supervisor
        self.payload = payload
        self.text = bytearray()
        self.ended = False  # the tester
        self.left = False  # the answer
        self.delays = [0.0, 0.0]
        self.tests_used = 0.0  # CPU seconds

    def run(self, index: int) -> str:
        supervisor = self.supervisor
        began = time.monotonic()
        null = os.open(os.devnull, os.O_RDWR)
        calls_out, calls_in = os.pipe()
        results_out, results_in = os.pipe()
        supervisor.start([null] * 3 + [calls_out, results_in])
        for fd in (null, calls_out, results_in):
            os.close(fd)
        self.fork_tester((calls_in, results_out))
        killed = self.wait(began)
        # The tester first: it would report an answer that has died as one that failed its test.
        for pid in (self.tester, supervisor.pid):
            if killed and pid:
                kill_group(pid)
        reply = self.end_answer(killed)
        _, status, usage = os.wait4(self.tester, 0)
        self.read()
        os.close(self.report)
        wall = time.monotonic() - began
        return self.record(index, reply, exit_code(status), usage, wall, killed or "-")

    def end_answer(self, killed: str | None) -> list[str]:
        """Wait until the answer is dead, and kill it if it need not be there any more."""
        supervisor = self.supervisor
        if not self.left and not supervisor.readable(0) and not killed:
            kill_group(supervisor.forked_pid())
        reply = supervisor.reply(REPLY_TIMEOUT_AFTER_KILL)
        supervisor.pid = None
        return reply.split()

    def record(
        self,
        index: int,
        reply: list[str],
        status: int,
        usage: resource.struct_rusage,
        wall: float,
        flag: str,
    ) -> str:
        """Add the record, unless the call's results are full; returns how the case ended."""
        results, most = self.supervisor.results, self.supervisor.spec.max_results
        if index and results.size + len(self.text) > most:
            return "full"
        report, _, failure = bytes(self.text).partition(b"\n\n")
        lost = report.endswith(function_tester.LOST.encode())
        if status == 0 and lost:
            status = int(reply[0])
        user = int(reply[2]) + int(usage.ru_utime * 1e6)
        cpu = int(reply[1]) + int((usage.ru_utime + usage.ru_stime) * 1e6)
        words = (index, status, cpu, user, int(wall * 1e6), int(reply[3]), flag)
        results.add("case", *words, out=report, err=failure)
        if reply[4] != "clean":
            raise ZygoteLostError
        return flag

    # The tester

    def fork_tester(self, channel: tuple[int, int]) -> None:
        self.report, report = os.pipe()
        self.tester = fork()
        if self.tester == 0:
            try:
                os.close(self.report)
                self.become_tester(report, channel)
            finally:
                os._exit(1)
        for fd in (report, *channel):
            os.close(fd)

    def become_tester(self, report: int, channel: tuple[int, int]) -> None:
        """Run the tests; nothing of the supervisor's secrets is needed any more."""
        supervisor = self.supervisor
        os.setpgid(0, 0)
        spec = supervisor.spec
        for fd in (supervisor.requests.detach(), supervisor.replies, supervisor.results.file):
            if fd >= 0:
                os.close(fd)
        del supervisor.results, spec.key
        Zygote.leave_streams()
        os.chdir(supervisor.folder + "/case")
        limit_tester(spec.cpu_limit, spec.memory)
        calls, replies = channel
        function_tester.run(calls, replies, report, self.payload, supervisor.forked_pid())
        os._exit(0)

    def read(self) -> None:
        """Read what is there of the report."""
        while select.select([self.report], [], [], 0)[0]:
            data = os.read(self.report, 65536)
            if not data:
                self.ended = True
                return
            if len(self.text) < MAX_REPORT:
                self.text += data

    # Limits

    def wait(self, began: float) -> str | None:
        """Wait until the tests have ended; returns the name of a limit that is exceeded before."""
        supervisor, spec = self.supervisor, self.supervisor.spec
        seconds = pause(spec.cpu_limit)
        while True:
            watched = [self.report] if self.left else [self.report, supervisor.replies]
            ready, _, _ = select.select(watched, [], [], min(seconds, spec.wall_limit))
            if self.report in ready:
                self.read()
                if self.ended:
                    return None
                continue
            if ready:
                self.left = True
                continue
            used, delayed = self.measure()
            left = began + spec.wall_limit + delayed - time.monotonic()
            if used >= spec.cpu_limit or left <= 0:
                return "cpu" if used >= spec.cpu_limit else "wall"
            seconds = min(pause(spec.cpu_limit - used), left)

    def measure(self) -> tuple[float, float]:
        """Return CPU seconds of both processes, and seconds that they waited for a processor."""
        supervisor = self.supervisor
        supervisor.pid = supervisor.forked_pid()
        for place, pid in enumerate((supervisor.pid, self.tester)):
            self.delays[place] = max(self.delays[place], run_delay_of(pid))
        longest = (STRETCH - 1) * supervisor.spec.wall_limit
        self.tests_used = max(self.tests_used, clock_of(self.tester) or 0.0)
        used = supervisor.used() + self.tests_used
        return used, min(sum(self.delays), longest)


def limit_tester(cpu: float, memory: int) -> None:
    """Prepare this process, a fresh fork, for tests: limits in seconds and bytes."""
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_CPU, int(cpu) + 2)
    if memory > 0:
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            limit(kind, memory)
    renew()
