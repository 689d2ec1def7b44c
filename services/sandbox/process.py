"""Processes in a slot: one command with its pipes and limits, or the cases of an answer.

The slot's init starts the command, enforces the time limit, kills everything that the command
started, and reports its end. A command under a shell's exit code 126 or 127 could not be executed.
"""

import asyncio
import itertools
import os
import secrets
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from services.sandbox.slots import EndReason, Order, Report, Slot
from shared.harness import wire
from shared.harness.wire import CallResult, RunCasesRequest

DRAIN_SECONDS = 2.0
CHUNK = 256 * 1024


@dataclass(frozen=True)
class Command:
    """A command to spawn.

    Attributes:
        kind: ``python`` if a warmed interpreter may run it.
        uid: User of the slot, who must be able to reopen the pipes; None for the server's own user.
        limits: Resource limits as numbers of ``resource.RLIMIT_*`` and values.
        seconds: Wall-clock limit; infinity for none.
    """

    kind: Literal["exec", "python"]
    argv: Sequence[str]
    env: dict[str, str]
    folder: Path
    uid: int | None
    limits: Sequence[tuple[int, int]]
    stdin: bytes
    seconds: float
    output_limit: int
    compiles: bool = False


@dataclass(frozen=True)
class ProcessResult:
    """Result of a command; ``return_code`` is None after a timeout and negative after a signal."""

    timed_out: bool
    over_limit: bool
    disk_limit: bool
    seconds: float
    return_code: int | None
    stdout: bytes
    stderr: bytes


async def run(command: Command, slot: Slot) -> ProcessResult:
    """Run ``command``; no process of it is left after a return or a cancellation.

    Raises:
        OSError: The pipes could not be opened.
        SlotLostError: The slot ended before the command did.
    """
    order = Order(
        kind=command.kind,
        seconds=command.seconds,
        argv=list(command.argv),
        cwd=str(command.folder),
        env=command.env,
        limits=list(command.limits),
        compiles=command.compiles,
    )
    (stdin, feed), (out, stdout), (err, stderr) = open_pipes(3)
    ends = (stdin, stdout, stderr)
    if command.uid is not None:
        try:
            # Otherwise the program could not open /dev/stdin, as some do to read their input.
            for fd in ends:
                os.fchown(fd, command.uid, command.uid)
        except OSError:
            for fd in (*ends, feed, out, err):
                os.close(fd)
            raise
    over_limit = False

    def check(over: bool) -> None:
        nonlocal over_limit
        if over and not over_limit:
            over_limit = True
            slot.kill()

    readers = [PipeReader(fd, command.output_limit, check) for fd in (out, err)]
    writer = PipeWriter(feed, command.stdin)
    try:
        report = await slot.run(order, ends)
    finally:
        writer.close()
        await asyncio.shield(asyncio.ensure_future(_drain(readers)))
    return _result(report, over_limit, *(bytes(reader.data) for reader in readers))


async def run_cases(request: RunCasesRequest, slot: Slot) -> CallResult:
    """Run an answer on its inputs; a result without ``end`` is incomplete.

    Raises:
        OSError: The pipes could not be opened.
        SlotLostError: The slot ended before the cases did.
    """
    key, name = secrets.token_bytes(32), secrets.token_hex(8)
    answer = request.code.encode()
    spec = wire.encode_spec(key, request.language, request.limits, request.inputs).encode()
    (request_end, feed), (out, results_end) = open_pipes(2)
    reader = PipeReader(out, wire.longest_results(request.limits), lambda _over: None)
    writer = PipeWriter(feed, b"%d\n%b%b" % (len(answer), answer, spec))
    order = Order(
        kind="cases", seconds=request.limits.call, name=name, compiles=request.language == "cpp"
    )
    try:
        report = await slot.run(order, (request_end, results_end))
    finally:
        writer.close()
        await asyncio.shield(asyncio.ensure_future(_drain([reader])))
    result = wire.decode_results(reader.data, key)
    result.seconds = report.seconds
    return result


def _result(report: Report, over_limit: bool, stdout: bytes, stderr: bytes) -> ProcessResult:
    timed_out = report.reason is EndReason.TIMEOUT and not over_limit
    status = report.status
    if over_limit or (status is None and not timed_out):
        status = -signal.SIGKILL
    full = report.reason is EndReason.DISK_LIMIT
    return ProcessResult(timed_out, over_limit, full, report.seconds, status, stdout, stderr)


async def _drain(readers: Sequence["PipeReader"]) -> None:
    """Read the rest; all writers are dead, so this only waits for the event loop."""
    await asyncio.wait([reader.ended for reader in readers], timeout=DRAIN_SECONDS)
    for reader in readers:
        reader.close()


# Pipes, read and written by the event loop so that neither side blocks.


def open_pipes(count: int) -> list[tuple[int, int]]:
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
