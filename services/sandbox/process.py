"""Processes in a slot: one command with its streams and limits, or the cases of an answer.

The slot's init starts the command, feeds and drains its pipes, enforces the limits of time and
output, kills everything that the command started, and reports its end. What goes in and comes out
lies in unnamed files in memory, so nothing about a program depends on when this process gets to
it. A command under a shell's exit code 126 or 127 could not be executed.
"""

import os
import resource
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from services.sandbox.isolation import Identity
from services.sandbox.slots import EndReason, Order, Report, Slot, environment
from shared.harness import wire
from shared.harness.cases.folders import write_all
from shared.harness.sandbox_api import CommandResult, CommandStatus
from shared.harness.wire import CallResult, RunCasesRequest

MIB = 1024 * 1024


# Commands


async def run_command(
    slot: Slot,
    argv: list[str],
    stdin: bytes,
    seconds: float,
    limits: Sequence[tuple[int, int]],
    variables: Mapping[str, str],
    *,
    compiles: bool = False,
) -> CommandResult:
    """Run a command in the workspace of a slot; no process of it is left after a return.

    The status is ``Error`` if the sandbox itself fails. RLIMIT_STACK is unchanged: it is also the
    default stack size of threads, and with a large one every thread creation fails.

    Args:
        slot: The slot.
        argv: Command line.
        stdin: Its standard input.
        seconds: Wall-clock limit.
        limits: Kinds and values of resource limits in addition to those of all commands.
        variables: Variables in addition to those of all programs.
        compiles: Whether it is a compiler.

    Raises:
        SlotLostError: The slot ended; what the command left must not be used.
    """
    if seconds <= 0:  # started, it might write something before it is killed
        status = CommandStatus.TIME_LIMIT_EXCEEDED
        return CommandResult(status=status, execution_time=0.0, stdout="", stderr="")
    settings, folder = slot.settings, slot.workspace.path
    every = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, settings.file_limit_bytes),
        (resource.RLIMIT_NOFILE, settings.open_files_limit),
    ]
    # For the server's own user the limit would include the server's other processes.
    if slot.isolation.identity is not Identity.SERVER:
        every.append((resource.RLIMIT_NPROC, settings.process_limit))
    own = environment(slot.isolation, settings, folder)
    order = Order(
        kind="exec",
        seconds=seconds,
        argv=argv,
        cwd=str(folder),
        env={**own, "PWD": str(folder), **variables},
        limits=[*every, *limits],
        compiles=compiles,
        output_limit=settings.output_limit_bytes,
    )
    try:
        report, outputs = await _run(slot, order, [stdin], [order.output_limit] * 2)
        stdout, stderr = map(_decode, outputs)
    except (OSError, ValueError) as error:
        message = f"the sandbox could not start {' '.join(argv)}: {error}"
        return CommandResult(status=CommandStatus.ERROR, stderr=message)
    if report.reason is EndReason.OUTPUT_LIMIT:
        stderr += f"\noutput limit of {order.output_limit} bytes exceeded\n"
    if report.reason is EndReason.DISK_LIMIT:
        stderr += f"\ndisk limit of {slot.settings.disk_limit_bytes} bytes exceeded\n"
    late = report.reason is EndReason.TIMEOUT
    killed = report.status is None and not late
    return CommandResult(
        status=CommandStatus.TIME_LIMIT_EXCEEDED if late else CommandStatus.FINISHED,
        execution_time=report.seconds,
        return_code=-signal.SIGKILL if killed else report.status,
        stdout=stdout,
        stderr=stderr,
    )


def _decode(stream: bytes) -> str:
    try:
        return stream.decode()
    except UnicodeDecodeError as error:
        return f"[DecodeError] {error}"


# Answers


async def run_cases(request: RunCasesRequest, slot: Slot) -> CallResult:
    """Run an answer on its inputs; a result without ``end`` is incomplete.

    Raises:
        OSError: The files could not be created.
        SlotLostError: The slot ended before the cases did.
    """
    call = wire.encode_call(request)
    order = Order(kind="cases", seconds=request.limits.call)
    if request.language == wire.FUNCTIONS and len(request.inputs) == 1:
        # The tests run in a child of the slot's init.
        order = Order(
            kind="functions", seconds=request.limits.call, spec=call.partition(b"\n")[0].decode()
        )
    inputs = "".join(request.inputs).encode()
    most = wire.longest_results(request.limits)
    report, (records,) = await _run(slot, order, [call, inputs], [most])
    result = wire.decode_results(records)
    if report.status == -signal.SIGALRM and result.compiled is None:
        result = CallResult("timeout", end="compile", compile_seconds=request.limits.compile)
    result.seconds = report.seconds
    return result


async def _run(
    slot: Slot, order: Order, inputs: Sequence[bytes], limits: Sequence[int]
) -> tuple[Report, list[bytes]]:
    """Run an order with unnamed files in memory: its inputs, and outputs of at most ``limits``."""
    with ExitStack() as stack:
        files = []
        for _ in (*inputs, *limits):
            files.append(os.memfd_create("file"))
            stack.callback(os.close, files[-1])
        for fd, data in zip(files, inputs, strict=False):
            write_all(fd, data)
            os.lseek(fd, 0, os.SEEK_SET)
        report = await slot.run(order, [os.dup(fd) for fd in files])
        outputs = zip(files[len(inputs) :], limits, strict=True)
        return report, [os.pread(fd, min(os.fstat(fd).st_size, most), 0) for fd, most in outputs]
