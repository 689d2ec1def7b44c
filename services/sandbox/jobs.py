"""One command of a request, under isolation and limits."""

import math
from dataclasses import dataclass

from services.sandbox import process
from services.sandbox.isolation import Identity, Isolation
from services.sandbox.limits import Limits
from services.sandbox.process import Command, Ended
from services.sandbox.reaper import Reaper
from services.sandbox.schemas import CommandResult, CommandStatus
from services.sandbox.settings import SandboxSettings
from services.sandbox.workspace import Workspace


@dataclass(frozen=True)
class Job:
    """A command before isolation and limits are put around it."""

    argv: list[str]
    workspace: Workspace
    uid: int | None
    stdin: bytes
    seconds: float
    memory: int | None


class Jobs:
    """Executes jobs under one isolation."""

    def __init__(self, settings: SandboxSettings, isolation: Isolation, reaper: Reaper) -> None:
        self._settings = settings
        self._isolation = isolation
        self._reaper = reaper

    async def execute(self, job: Job) -> CommandResult:
        """Run one command; trouble of the sandbox itself has the status ``Error``."""
        if math.isnan(job.seconds):
            return CommandResult(status=CommandStatus.ERROR, stderr="the time limit is NaN")
        try:
            ended = await process.run(self._command(job), self._reaper)
        except (OSError, ValueError) as error:
            message = f"cannot start {' '.join(job.argv)}: {error}"
            return CommandResult(status=CommandStatus.ERROR, stderr=message)
        return _result(ended, self._settings.output_limit_bytes)

    def _command(self, job: Job) -> Command:
        folder = job.workspace.path
        inside_namespace = self._isolation.own_processes
        script = process.SUPERVISE if inside_namespace else process.REPLACE
        shell = script.replace("{limits}", self._limits(job).shell())
        supervised = ["sh", "-c", shell, "sh", str(folder), *job.argv]
        return Command(
            argv=self._isolation.command(folder, job.uid or 0, supervised),
            env=self._environment(job),
            folder=folder,
            uid=job.uid,
            stdin=job.stdin,
            seconds=job.seconds,
            output_limit=self._settings.output_limit_bytes,
            reports_end=inside_namespace,
        )

    def _limits(self, job: Job) -> Limits:
        shared_user = self._isolation.identity is Identity.SERVER
        return Limits(
            memory=job.memory,
            file_size=self._settings.file_limit_bytes,
            open_files=self._settings.open_files_limit,
            # As the server's own user the limit would count the server's other processes too.
            processes=None if shared_user else self._settings.process_limit,
        )

    def _environment(self, job: Job) -> dict[str, str]:
        return {
            "PATH": f"{self._settings.python.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
            "HOME": str(job.workspace.path),
            "PYTHONDONTWRITEBYTECODE": "1",
            # A random seed makes the order of sets differ from run to run, and with it the output
            # of some programs: a verdict must be a function of the program alone.
            "PYTHONHASHSEED": "0",
        }


def _result(ended: Ended, output_limit: int) -> CommandResult:
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
