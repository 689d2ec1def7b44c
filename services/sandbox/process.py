"""Processes in a slot: one command with its streams and limits, or the cases of an answer.

The slot's init starts the command, feeds and drains its pipes, enforces the limits of time and
output, kills everything that the command started, and reports its end. What goes in and comes out
lies in unnamed files in memory, so nothing about a program depends on when this process gets to
it. A command under a shell's exit code 126 or 127 could not be executed.
"""

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from services.sandbox.slots import EndReason, Order, Report, Slot
from shared.harness import wire
from shared.harness.wire import CallResult, CaseRun, FunctionEnd, RunCasesRequest

# Bytes of the report of function tests.
MAX_REPORT = 1 << 24
# Bytes from which a file is written and read beside the event loop.
LARGE = 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True)
class Command:
    """A command to spawn.

    Attributes:
        kind: ``python`` if a warmed interpreter may run it.
        limits: Resource limits as numbers of ``resource.RLIMIT_*`` and values.
        seconds: Wall-clock limit; infinity for none.
        output_limit: Bytes of stdout, and of stderr.
    """

    kind: Literal["exec", "python"]
    argv: Sequence[str]
    env: dict[str, str]
    folder: Path
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
        OSError: The files could not be created.
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
        output_limit=command.output_limit,
    )
    with memory_files("stdin", "stdout", "stderr") as (stdin, stdout, stderr):
        await _write(stdin, command.stdin)
        report = await slot.run(order, [os.dup(fd) for fd in (stdin, stdout, stderr)])
        streams = [await _read(fd, command.output_limit) for fd in (stdout, stderr)]
    return _result(report, *streams)


async def run_cases(request: RunCasesRequest, slot: Slot) -> CallResult:
    """Run an answer on its inputs; a result without ``end`` is incomplete.

    Raises:
        OSError: The files could not be created.
        SlotLostError: The slot ended before the cases did.
    """
    if request.language == "functions" and len(request.inputs) == 1:
        return await run_functions(request, slot)
    key = secrets.token_bytes(32)
    answer = request.code.encode()
    spec = wire.encode_spec(
        key, request.language, request.limits, request.inputs, timed=request.timed
    ).encode()
    order = Order(kind="cases", seconds=request.limits.call)
    with memory_files("request", "results") as (call, results):
        await _write(call, b"%d\n%b%b" % (len(answer), answer, spec))
        report = await slot.run(order, [os.dup(fd) for fd in (call, results)])
        records = await _read(results, wire.longest_results(request.limits))
    result = wire.decode_results(records, key)
    result.seconds = report.seconds
    return result


async def run_functions(request: RunCasesRequest, slot: Slot) -> CallResult:
    """Run the tests of an answer's functions once, in two children of the slot's init.

    Raises:
        OSError: The files could not be created.
        SlotLostError: The slot ended before the tests did.
    """
    limits, (tests,) = request.limits, request.inputs
    answer, prelude = request.code.encode(), tests.partition("\n")[0].encode()
    order = Order(kind="functions", seconds=limits.call, case_limits=limits)
    with memory_files("answer", "tests", "report") as files:
        await _write(files[0], b"%d\n%b%b" % (len(answer), answer, prelude))
        await _write(files[1], tests.encode())
        report = await slot.run(order, [os.dup(fd) for fd in files])
        text = await _read(files[2], MAX_REPORT)
    result = _function_result(report, text)
    if not request.timed:
        result.compile_seconds = None
    return result


def _function_result(report: Report, text: bytes) -> CallResult:
    """Make the result of function tests, which is incomplete if the init had to end them."""
    result, case = CallResult(seconds=report.seconds), report.case
    if case is None or case.compiled is None or report.reason not in ("ended", "timeout"):
        return result
    if case.compiled == "lost":
        result.end = "lost"
        return result
    result.compiled, result.compile_seconds = case.compiled, case.compile_seconds
    if case.compiled != "ok":
        result.end, result.compile_output = "compile", text.decode("utf-8", "replace")
        return result
    codes, _, failure = text.partition(b"\n\n")
    lost = case.tester == 0 and codes.endswith(FunctionEnd.LOST.encode())
    status = case.answer if lost else case.tester
    result.end = "done"
    result.cases[0] = CaseRun(
        exit_code=-signal.SIGKILL if status is None else status,
        **case.model_dump(include={"cpu", "user", "wall", "memory", "limit"}),
        stdout=codes,
        stderr=failure.decode("utf-8", "replace"),
    )
    return result


def _result(report: Report, stdout: bytes, stderr: bytes) -> ProcessResult:
    timed_out = report.reason is EndReason.TIMEOUT
    status = report.status
    if status is None and not timed_out:
        status = -signal.SIGKILL
    over_limit = report.reason is EndReason.OUTPUT_LIMIT
    full = report.reason is EndReason.DISK_LIMIT
    return ProcessResult(timed_out, over_limit, full, report.seconds, status, stdout, stderr)


# Unnamed files in memory


@contextmanager
def memory_files(*names: str) -> Iterator[list[int]]:
    """Open unnamed files for the duration of the block."""
    with ExitStack() as stack:
        files = []
        for name in names:
            files.append(os.memfd_create(name))
            stack.callback(os.close, files[-1])
        yield files


async def _write(fd: int, data: bytes) -> None:
    """Write a file and go back to its beginning."""
    await _call(len(data), lambda: _write_all(fd, data))
    os.lseek(fd, 0, os.SEEK_SET)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


async def _read(fd: int, most: int) -> bytes:
    """Read the first ``most`` bytes of a file, wherever others are in it."""
    size = min(os.fstat(fd).st_size, most)
    return await _call(size, lambda: os.pread(fd, size, 0))


async def _call(size: int, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if size >= LARGE else work()
