"""Supervisor: starts cases, enforces the limits and writes the results.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import _socket  # socket itself takes milliseconds to load
import os
import select
import sys
import time

from shared.harness.cases.folders import CaseFolder, SharedFolder
from shared.harness.cases.processes import kill_group, pause, run_delay_of, stat_of, tree_seconds
from shared.harness.cases.records import FUNCTIONS, PYTHON, RESULTS
from shared.harness.cases.streams import HEAD, Streams, wants_pipe

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.harness.cases.records import Records, RunSpec

# Seconds to wait for a reply of the zygote; fewer after an answer was killed, because it may have
# stopped the zygote.
REPLY_TIMEOUT, REPLY_TIMEOUT_AFTER_KILL = 10.0, 5.0
# A case's wall-clock limit excludes the time that it waited for a processor, up to a total of this
# many times the limit.
STRETCH = 5.0


class ZygoteLostError(Exception):
    """The zygote is dead, or does not reply."""


class Supervisor:
    """Starts cases, enforces time limits, writes the results (see the module docstring)."""

    def __init__(
        self,
        folder: str,
        user: int | None,
        forked: int,
        requests: _socket.socket,
        replies: int,
        zygote: int,
        shared: Sequence[SharedFolder],
    ) -> None:
        self.folder = folder
        self.user = user
        self.forked = forked
        self.requests = requests
        self.replies = replies
        self.zygote = zygote
        self.pid: int | None = None
        self.case: CaseFolder | None = None
        kept = [folder + "/" + name for name in ("case", "program", RESULTS)]
        self.shared = [*shared, SharedFolder(folder, kept)]
        self.streams: Streams | None = None
        self.buffer = b""
        self.began = time.monotonic()

    def work(self, spec: RunSpec, answer: bytes, results: Records) -> None:
        self.spec = spec
        self.results = results
        self.prelude = b""
        if spec.language == FUNCTIONS:
            self.prelude = prelude_of(spec.inputs[0])
        try:
            results.add("end", self.run_all() if self.compile(answer) else "compile")
        except (ZygoteLostError, OSError, ValueError):
            results.add("end", "lost")
            self.pid = self.pid or int(os.pread(self.forked, 20, 0) or 0)
        for pid in (self.pid, self.zygote):
            if pid:
                kill_group(pid)
        results.close()

    def compile(self, answer: bytes) -> bool:
        spec = self.spec
        self.case = CaseFolder(self.folder, spec.language, answer, self.user)
        self.case.restore()
        self.pipe = wants_pipe(answer)
        self.head = 0 if spec.language == PYTHON else HEAD
        words = (spec.language, spec.cpu_limit, spec.memory, spec.output, spec.processes)
        sizes = (int(self.pipe), len(answer), len(self.prelude))
        began = time.monotonic()
        self.send(" ".join(map(str, (*words, *sizes))), answer + self.prelude)
        try:
            kind, size = self.receive(spec.compile_limit).split()
        except TimeoutError:
            self.results.add("compile", "timeout", microseconds_since(began))
            return False
        text = self.receive_bytes(int(size))
        self.results.add("compile", kind, microseconds_since(began), err=text)
        self.compiled = self.compiled_now()
        return kind == "ok"

    def run_all(self) -> str:
        late = 0
        for index, stdin in enumerate(self.spec.inputs):
            if index and time.monotonic() - self.began > self.spec.budget:
                return "budget"
            if not self.freshen() and index:
                return "full"  # the other cases get a call of their own
            ended = self.run(index, stdin)
            if ended == "full":
                return ended
            late += ended in ("cpu", "wall")
            if late == self.spec.max_timeouts > 0:
                return "timeouts"
        return "done"

    def freshen(self) -> bool:
        """Remove what the last case left in folders; returns whether the program is unchanged."""
        assert self.case is not None
        for folder in self.shared:
            folder.restore()
        self.case.restore()
        return self.compiled == self.compiled_now()

    def compiled_now(self) -> object:
        """Return what changes with a compiled program, which only its owner may make writable."""
        try:
            program = os.lstat(self.folder + "/program")
        except FileNotFoundError:
            return None
        return program.st_ino, program.st_mode, program.st_ctime_ns

    def run(self, index: int, stdin: bytes) -> str:
        """Run a case; returns its limit, ``-``, or ``full`` if the results of a call exceed theirs.

        It then has no result, and runs again as the first one of another call.
        """
        os.ftruncate(self.forked, 0)
        spec = self.spec
        if spec.language == FUNCTIONS:
            from shared.harness.function_case import FunctionCase  # it need not be there otherwise

            return FunctionCase(self, stdin).run(index)
        streams = Streams(self.folder, stdin, self.pipe, self.user, spec.output, self.head)
        self.streams = streams
        began = time.monotonic()
        self.start(streams.given)
        streams.close_given()
        killed = self.wait(began)
        reply = self.reply(REPLY_TIMEOUT_AFTER_KILL if killed else REPLY_TIMEOUT)
        status, cpu, user, memory, clean = reply.split()
        wall = time.monotonic() - began
        streams.finish()
        flag = killed or ("output" if streams.full else "-")
        printed = b"" if streams.full else bytes(streams.out.data)
        if index and self.results.size + len(printed) > spec.max_results:
            return "full"
        words = (index, status, cpu, user, int(wall * 1e6), memory, flag)
        self.results.add("case", *words, out=printed, err=bytes(streams.err.data))
        self.pid = None
        if clean != "clean":
            # A process of this case is still alive and would disturb the next case.
            raise ZygoteLostError
        return flag

    def wait(self, began: float) -> str | None:
        """Wait for a case to end; kill it at a limit, and return the name of the limit."""
        spec = self.spec
        seconds = pause(spec.cpu_limit)
        while True:
            if self.readable(min(seconds, spec.wall_limit)):
                return None
            pid = self.pid = self.forked_pid()
            if not stat_of(pid):
                return None  # it has been reaped, and the reply follows
            if self.streams is not None and self.streams.full:
                kill_group(pid)
                return "output"
            delayed = min(run_delay_of(pid), (STRETCH - 1) * spec.wall_limit)
            left = began + spec.wall_limit + delayed - time.monotonic()
            used = self.used()
            if used >= spec.cpu_limit or left <= 0:
                if self.readable(0):
                    return None
                kill_group(pid)
                return "cpu" if used >= spec.cpu_limit else "wall"
            seconds = min(pause(spec.cpu_limit - used), left)

    def used(self) -> float:
        """Return the CPU seconds of the case so far, with everything that it has started.

        Those for which the zygote has waited, and those of its descendants: it adopts orphans.
        """
        return int(os.pread(self.forked, 20, 21)) / 1e6 + tree_seconds(self.zygote)

    def forked_pid(self) -> int:
        """Return the process of the case, which the zygote notes when it has forked it."""
        give_up = time.monotonic() + REPLY_TIMEOUT
        while not (noted := os.pread(self.forked, 20, 0)):
            if time.monotonic() > give_up:
                raise ZygoteLostError
            time.sleep(0.001)
        return int(noted)

    def send(self, text: str, data: bytes = b"") -> None:
        try:
            self.requests.sendall(text.encode() + b"\n" + data)
        except OSError:
            raise ZygoteLostError from None

    def start(self, streams: list[int]) -> None:
        """Start a case with these standard streams, and the channel of an answer's functions."""
        descriptors = b"".join(fd.to_bytes(4, sys.byteorder) for fd in streams)
        try:
            self.requests.sendmsg(
                [b"run\n"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)]
            )
        except OSError:
            raise ZygoteLostError from None

    def readable(self, seconds: float) -> bool:
        """Wait for a reply; returns early if the case prints too much."""
        if b"\n" in self.buffer:
            return True
        if self.streams is not None:
            return self.streams.wait(self.replies, seconds)
        return bool(select.select([self.replies], [], [], seconds)[0])

    def reply(self, seconds: float) -> str:
        try:
            return self.receive(seconds)
        except TimeoutError:
            raise ZygoteLostError from None

    def receive(self, seconds: float) -> str:
        give_up = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            if not self.readable(max(0, give_up - time.monotonic())):
                raise TimeoutError
            self.fill()
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    def receive_bytes(self, size: int) -> bytes:
        while len(self.buffer) < size:
            self.fill()
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def fill(self) -> None:
        data = os.read(self.replies, 65536)
        if not data:
            raise ZygoteLostError
        self.buffer += data


def microseconds_since(began: float) -> int:
    return int((time.monotonic() - began) * 1e6)


def prelude_of(payload: bytes) -> bytes:
    """Return the part of function tests that the answer may know (see ``wire.FunctionTests``)."""
    import json  # slow to load, and only function tests need it

    prelude: str = json.loads(payload.partition(b"\n")[0])
    return prelude.encode("utf-8", "replace")
