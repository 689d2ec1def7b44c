"""Process of one command: spawn, time limit, output limit, kill of all descendants.

A shell runs between the server and the program. It sets the limits, writes ``S`` to file
descriptor 3 when the program starts (the time limit starts there, not when the isolation is set
up), and, inside a process namespace, writes ``E <status>`` when the program has ended. A shell
reports death by signal n as status 128+n, the same as an exit with that code, but it also prints a
message for a signal, which distinguishes the two. No shell prints one for SIGINT and SIGPIPE, and
some print none for SIGTERM, so a program that exits with exactly 130, 141 or 143 is reported as
killed by the signal.
"""

import asyncio
import itertools
import math
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from services.sandbox.reaper import ActiveRun, Reaper

SETUP_SECONDS = 30.0
DRAIN_SECONDS = 2.0
STATUS_LIMIT = 64 * 1024
CHUNK = 256 * 1024
QUIET_SIGNALS = (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)
END = re.compile(rb"^E (\d+)$", re.MULTILINE)

SUPERVISE = (
    "exec 4>&2 2>&3; "
    '(cd -- "$1" && shift && unset OLDPWD && {limits} && echo S >&3 && exec "$@" 2>&4 3>&- 4>&-); '
    "echo E $? >&3"
)
REPLACE = 'cd -- "$1" && shift && unset OLDPWD && {limits} && echo S >&3 && exec "$@" 3>&-'


@dataclass(frozen=True)
class Command:
    """A command to spawn.

    Attributes:
        argv: The whole command line, isolation included.
        uid: User reserved for this run; None for the server's own user.
        seconds: Wall-clock limit; infinity for none.
        reports_end: The shell inside reports the exit status (see the module).
    """

    argv: list[str]
    env: dict[str, str]
    folder: Path
    uid: int | None
    stdin: bytes
    seconds: float
    output_limit: int
    reports_end: bool


@dataclass(frozen=True)
class ProcessResult:
    """Result of a command; ``return_code`` is None after a timeout and negative after a signal."""

    started: bool
    timed_out: bool
    over_limit: bool
    seconds: float
    return_code: int | None
    stdout: bytes
    stderr: bytes


class Process:
    """A started command. The caller must always call ``end``."""

    def __init__(self, command: Command, reaper: Reaper) -> None:
        self._command = command
        self._reaper = reaper
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = loop.create_future()
        self.stopped: asyncio.Future[None] = loop.create_future()
        self.over_limit = False
        self._spawn()

    def _spawn(self) -> None:
        pipes = _pipes(4)
        (stdin, feed), (out, stdout), (err, stderr), (report, status) = pipes
        ends = (stdin, stdout, stderr, status)
        try:
            if self._command.uid is not None:
                # Otherwise the program could not open /dev/stdin, as some do to read their input.
                for fd in (stdin, stdout, stderr):
                    os.fchown(fd, self._command.uid, self._command.uid)
            pid = _start(self._command, ends)
        except OSError:
            for fd in (feed, out, err, report):
                os.close(fd)
            raise
        finally:
            for fd in ends:
                os.close(fd)
        self._run = ActiveRun(pid, self._command.folder, self._command.uid)
        self._reaper.add(self._run)
        self.exited = asyncio.ensure_future(_wait(pid))
        self.exited.add_done_callback(lambda _: self._stop())
        limit = self._command.output_limit
        self._stdout = PipeReader(out, limit, self._on_output)
        self._stderr = PipeReader(err, limit, self._on_output)
        self._status = PipeReader(report, STATUS_LIMIT, self._on_status)
        self._stdin = PipeWriter(feed, self._command.stdin)

    async def end(self) -> None:
        """Kill all remaining processes of the command and read the rest of its output."""
        self._reaper.kill_group(self._run)
        await self.exited
        await self._reaper.finish(self._run)
        self._stdin.close()
        readers = (self._stdout, self._stderr, self._status)
        await asyncio.wait([reader.ended for reader in readers], timeout=DRAIN_SECONDS)
        for reader in readers:
            reader.close()

    def result(self, seconds: float, timed_out: bool) -> ProcessResult:
        return ProcessResult(
            started=self.started.done(),
            timed_out=timed_out,
            over_limit=self.over_limit,
            seconds=seconds,
            return_code=None if timed_out else self._return_code(),
            stdout=bytes(self._stdout.data),
            stderr=bytes(self._stderr.data),
        )

    def _return_code(self) -> int:
        if self.over_limit:
            return -signal.SIGKILL
        if not self._command.reports_end:
            return self.exited.result()
        report = END.search(self._status.data)
        if report is None:
            return -signal.SIGKILL  # the program killed the shell above it
        return _decode(int(report[1]), message=bytes(self._status.data[: report.start()]))

    def _on_output(self, over_limit: bool) -> None:
        if over_limit:
            self.over_limit = True
            self._stop()

    def _on_status(self, _over_limit: bool) -> None:
        if not self.started.done() and b"S\n" in self._status.data:
            self.started.set_result(None)
        if END.search(self._status.data):
            self._stop()

    def _stop(self) -> None:
        if not self.stopped.done():
            self.stopped.set_result(None)


async def run(command: Command, reaper: Reaper) -> ProcessResult:
    """Run ``command``; no process of it is left after a return or a cancellation.

    Raises:
        OSError: The command could not be started.
    """
    process = Process(command, reaper)
    timed_out = False
    began = time.monotonic()
    try:
        setup = (process.started, process.stopped)
        await asyncio.wait(setup, timeout=SETUP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        began = time.monotonic()
        if process.started.done():
            limit = None if math.isinf(command.seconds) else max(0.0, command.seconds)
            await asyncio.wait((process.stopped,), timeout=limit)
            timed_out = not process.stopped.done()
        seconds = time.monotonic() - began
    finally:
        # Shielded: a second cancellation must not leave the processes behind.
        await asyncio.shield(asyncio.ensure_future(process.end()))
    return process.result(seconds, timed_out)


def _pipes(count: int) -> list[tuple[int, int]]:
    """Open pipes; if one cannot be opened, close the others."""
    pipes: list[tuple[int, int]] = []
    try:
        while len(pipes) < count:
            pipes.append(os.pipe())
    except OSError:
        for fd in itertools.chain.from_iterable(pipes):
            os.close(fd)
        raise
    return pipes


def _start(command: Command, ends: tuple[int, int, int, int]) -> int:
    # posix_spawn instead of subprocess: it puts the status pipe on descriptor 3 and never copies
    # the server's memory. A new session makes the process group killable. The program must not
    # inherit Python's SIG_IGN for SIGPIPE.
    return os.posix_spawnp(
        command.argv[0],
        command.argv,
        command.env,
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(ends)],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )


async def _wait(pid: int) -> int:
    """Wait for a child; return its exit code, negative after a signal."""
    loop = asyncio.get_running_loop()
    try:
        fd = os.pidfd_open(pid)
    except OSError:  # no pidfd: an old kernel, or an emulation of Linux
        _, status = await loop.run_in_executor(None, os.waitpid, pid, 0)
        return os.waitstatus_to_exitcode(status)
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # noqa: ASYNC222 (it has already ended)


def _decode(status: int, message: bytes) -> int:
    number = status - 128
    if 0 < number < signal.NSIG:
        words = message.replace(b"S\n", b"", 1).strip()
        if words or number in QUIET_SIGNALS:
            return -number
    return status


# Pipes, read and written by the event loop so that neither side blocks.


class PipeReader:
    """Reads a pipe to its end, keeping at most ``limit`` bytes.

    Attributes:
        data: The bytes read so far.
        ended: Done once the other side has closed the pipe.
    """

    def __init__(self, fd: int, limit: int, on_data: Callable[[bool], None]) -> None:
        """``on_data`` is called for every chunk, with whether the limit is exceeded."""
        self.data = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._fd = fd
        self._limit = limit
        self._on_data = on_data
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self._read)

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if not self.ended.done():
            self.ended.set_result(None)

    def _read(self) -> None:
        try:
            chunk = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            self.close()
            return
        room = self._limit - len(self.data)
        self.data += chunk[:room]
        self._on_data(len(chunk) > room)


class PipeWriter:
    """Writes ``data`` into a pipe as the other side reads it, then closes it."""

    def __init__(self, fd: int, data: bytes) -> None:
        self._fd = fd
        self._rest = memoryview(data)
        os.set_blocking(fd, False)
        self._write()
        if self._fd >= 0:
            asyncio.get_running_loop().add_writer(fd, self._write)

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _write(self) -> None:
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._fd, self._rest[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            pass  # the program closed its input or ended without reading all of it
        self.close()
