"""Commands of a run: resource limits and environment around a command line.

RLIMIT_STACK is unchanged: it is also the default stack size of threads, and with a large one every
thread creation fails.
"""

import resource
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.sandbox import process
from services.sandbox.isolation import Identity, Isolation
from services.sandbox.process import Command, ProcessResult
from services.sandbox.schemas import CommandResult, CommandStatus
from services.sandbox.settings import SandboxSettings
from services.sandbox.slots import Slot, environment
from services.sandbox.workspace import Workspace

MIB = 1024 * 1024
# With less memory, in bytes, a new interpreter behaves otherwise than a warmed one.
WARM_MEMORY = 128 * MIB


@dataclass(frozen=True)
class CommandSpec:
    """A command without limits; ``memory`` in bytes, None for no limit.

    ``data_limit``: the bytes that it may write to, in place of a limit of the address space, if it
    limits its heap itself and reserves more than it uses.
    ``script``: ``argv`` is an interpreter and a Python file that imports nothing from its folder.
    """

    argv: list[str]
    workspace: Workspace
    stdin: bytes
    seconds: float
    memory: int | None
    compiles: bool = False
    script: bool = False
    data_limit: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


class CommandRunner:
    """Runs commands in slots under one isolation."""

    def __init__(self, settings: SandboxSettings, isolation: Isolation) -> None:
        self._settings = settings
        self._isolation = isolation

    async def execute(self, spec: CommandSpec, slot: Slot) -> CommandResult:
        """Run one command; the status is ``Error`` if the sandbox itself fails.

        Raises:
            SlotLostError: The slot ended; what the command left must not be used.
        """
        if spec.seconds <= 0:  # started, it might write something before it is killed
            late = CommandStatus.TIME_LIMIT_EXCEEDED
            return CommandResult(status=late, execution_time=0.0, stdout="", stderr="")
        try:
            ended = await process.run(self._command(spec), slot)
        except (OSError, ValueError) as error:
            message = f"the sandbox could not start {' '.join(spec.argv)}: {error}"
            return CommandResult(status=CommandStatus.ERROR, stderr=message)
        return _result(ended, self._settings)

    def _command(self, spec: CommandSpec) -> Command:
        folder = spec.workspace.path
        own = environment(self._isolation, self._settings, folder)
        env = {**own, "PWD": str(folder), **spec.variables}
        small = spec.memory is not None and spec.memory < WARM_MEMORY
        return Command(
            kind="python" if spec.script and not small else "exec",
            argv=spec.argv,
            env=env,
            folder=folder,
            limits=self._limits(spec.memory, spec.data_limit),
            stdin=spec.stdin,
            seconds=spec.seconds,
            output_limit=self._settings.output_limit_bytes,
            compiles=spec.compiles,
        )

    def _limits(self, memory: int | None, data: int | None) -> list[tuple[int, int]]:
        limits = [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, self._settings.file_limit_bytes),
            (resource.RLIMIT_NOFILE, self._settings.open_files_limit),
        ]
        # For the server's own user the limit would include the server's other processes.
        if self._isolation.identity is not Identity.SERVER:
            limits.append((resource.RLIMIT_NPROC, self._settings.process_limit))
        if data is not None:
            limits.append((resource.RLIMIT_DATA, data))
        elif memory is not None:
            limits += [(resource.RLIMIT_DATA, memory), (resource.RLIMIT_AS, memory)]
        return limits


def _result(ended: ProcessResult, settings: SandboxSettings) -> CommandResult:
    stderr = _decode(ended.stderr)
    if ended.over_limit:
        stderr += f"\noutput limit of {settings.output_limit_bytes} bytes exceeded\n"
    if ended.disk_limit:
        stderr += f"\ndisk limit of {settings.disk_limit_bytes} bytes exceeded\n"
    timed_out = ended.timed_out
    return CommandResult(
        status=CommandStatus.TIME_LIMIT_EXCEEDED if timed_out else CommandStatus.FINISHED,
        execution_time=ended.seconds,
        return_code=ended.return_code,
        stdout=_decode(ended.stdout),
        stderr=stderr,
    )


def _decode(stream: bytes) -> str:
    try:
        return stream.decode()
    except UnicodeDecodeError as error:
        return f"[DecodeError] {error}"


def memory_limit(megabytes: int) -> int | None:
    """Convert ``memory_limit_MB`` to bytes; None (no limit) if not positive or above 2^62."""
    limit = megabytes * MIB
    return limit if 0 < limit < 2**62 else None
