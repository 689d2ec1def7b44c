"""Commands of a run: isolation, resource limits (ulimit) and environment around a command line.

The shell sets the limits just before ``exec`` of the program. A preexec hook would copy the
server's memory for every run. RLIMIT_STACK is unchanged: it is also the default stack size of
threads, and with a large one every thread creation fails.
"""

import math
import resource
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from services.sandbox import process
from services.sandbox.isolation import Identity, Isolation
from services.sandbox.process import Command, ProcessResult
from services.sandbox.reaper import Reaper
from services.sandbox.schemas import CommandResult, CommandStatus
from services.sandbox.settings import SandboxSettings
from services.sandbox.workspace import Workspace

KIB = 1024
MIB = 1024 * KIB
FILE_BLOCK = 512


@dataclass(frozen=True)
class CommandSpec:
    """A command without isolation and limits; ``memory`` in bytes, None for no limit."""

    argv: list[str]
    workspace: Workspace
    uid: int | None
    stdin: bytes
    seconds: float
    memory: int | None


class CommandRunner:
    """Runs commands under one isolation."""

    def __init__(self, settings: SandboxSettings, isolation: Isolation, reaper: Reaper) -> None:
        self._settings = settings
        self._isolation = isolation
        self._reaper = reaper

    async def execute(self, spec: CommandSpec) -> CommandResult:
        """Run one command; the status is ``Error`` if the sandbox itself fails."""
        if math.isnan(spec.seconds):
            return CommandResult(status=CommandStatus.ERROR, stderr="the time limit is NaN")
        try:
            ended = await process.run(self._command(spec), self._reaper)
        except (OSError, ValueError) as error:
            message = f"cannot start {' '.join(spec.argv)}: {error}"
            return CommandResult(status=CommandStatus.ERROR, stderr=message)
        return _result(ended, self._settings.output_limit_bytes)

    def _command(self, spec: CommandSpec) -> Command:
        folder = spec.workspace.path
        inside_namespace = self._isolation.own_processes
        script = process.SUPERVISE if inside_namespace else process.REPLACE
        shell = script.replace("{limits}", self._limits(spec).shell())
        inner = ["sh", "-c", shell, "sh", str(folder), *spec.argv]
        return Command(
            argv=self._isolation.command(folder, spec.uid or 0, inner),
            env=self._environment(spec),
            folder=folder,
            uid=spec.uid,
            stdin=spec.stdin,
            seconds=spec.seconds,
            output_limit=self._settings.output_limit_bytes,
            reports_end=inside_namespace,
        )

    def _limits(self, spec: CommandSpec) -> "Limits":
        shared_user = self._isolation.identity is Identity.SERVER
        return Limits(
            memory=spec.memory,
            file_size=self._settings.file_limit_bytes,
            open_files=self._settings.open_files_limit,
            # For the server's own user the limit would include the server's other processes.
            processes=None if shared_user else self._settings.process_limit,
        )

    def _environment(self, spec: CommandSpec) -> dict[str, str]:
        return {
            "PATH": f"{self._settings.python.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
            "HOME": str(spec.workspace.path),
            "PYTHONDONTWRITEBYTECODE": "1",
            # A fixed seed: otherwise the order of sets, and so the verdict of some programs, would
            # differ from run to run.
            "PYTHONHASHSEED": "0",
        }


def _result(ended: ProcessResult, output_limit: int) -> CommandResult:
    stderr = _decode(ended.stderr)
    if not ended.started:
        message = f"the sandbox could not start the program: {stderr.strip()}"
        return CommandResult(status=CommandStatus.ERROR, stderr=message)
    if ended.over_limit:
        stderr += f"\noutput limit of {output_limit} bytes exceeded\n"
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


# Resource limits.


@dataclass(frozen=True)
class Limits:
    """Resource limits in bytes and counts; None keeps the server's own limit."""

    memory: int | None
    file_size: int
    open_files: int
    processes: int | None

    def shell(self) -> str:
        """Return the shell commands that set the limits."""
        commands = ["ulimit -c 0"]
        if self.memory is not None:
            memory = max(1, self.memory // KIB)
            commands += [
                f"ulimit -v {_clamp(memory, resource.RLIMIT_AS, KIB)}",
                f"ulimit -d {_clamp(memory, resource.RLIMIT_DATA, KIB)}",
            ]
        blocks = _clamp(self.file_size // FILE_BLOCK, resource.RLIMIT_FSIZE, FILE_BLOCK)
        commands.append(f"ulimit -f {blocks}")
        commands.append(f"ulimit -n {_clamp(self.open_files, resource.RLIMIT_NOFILE, 1)}")
        if self.processes is not None:
            processes = _clamp(self.processes, resource.RLIMIT_NPROC, 1)
            commands.append(f"ulimit -{_process_flag()} {processes}")
        return " && ".join(commands)


def memory_limit(megabytes: int) -> int | None:
    """Convert ``memory_limit_MB`` to bytes; None (no limit) if not positive or above 2^62."""
    limit = megabytes * MIB
    return limit if 0 < limit < 2**62 else None


def _clamp(value: int, kind: int, unit: int) -> int:
    _, hard = resource.getrlimit(kind)
    return value if hard == resource.RLIM_INFINITY else min(value, hard // unit)


@cache
def _process_flag() -> str:
    """Return ulimit's flag for processes: ``u`` in most shells, ``p`` in dash."""
    shell = shutil.which("sh") or "/bin/sh"
    answer = subprocess.run([shell, "-c", "ulimit -u"], capture_output=True, check=False)
    return "u" if answer.returncode == 0 else "p"
