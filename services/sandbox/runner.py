"""A request's program from its files to its answer."""

import asyncio
import math
import os
import random
from dataclasses import dataclass

from services.sandbox import languages, process
from services.sandbox.isolation import Identity, Isolation
from services.sandbox.limits import Limits, memory_limit
from services.sandbox.process import Command, Ended
from services.sandbox.reaper import Reaper
from services.sandbox.schemas import (
    CommandResult,
    CommandStatus,
    RunCodeRequest,
    RunCodeResponse,
    RunStatus,
    overall_status,
)
from services.sandbox.settings import SandboxSettings
from services.sandbox.workspace import Workspace, WorkspaceError, inside

FIRST_UID, LAST_UID = 61000, 64999  # free by Debian's and systemd's conventions


@dataclass(frozen=True)
class Job:
    """One command of a request, before isolation and limits are put around it."""

    argv: list[str]
    workspace: Workspace
    uid: int | None
    stdin: bytes
    seconds: float
    memory: int | None


class Runner:
    """Runs requests under one isolation. Two requests at once must be given different slots."""

    def __init__(self, settings: SandboxSettings, isolation: Isolation, reaper: Reaper) -> None:
        self.isolation = isolation
        self._settings = settings
        self._reaper = reaper
        # Limits of processes count per user on the whole machine, so servers side by side
        # had better not use the same ones.
        spread = max(1, LAST_UID - FIRST_UID - settings.concurrency)
        self._first_uid = FIRST_UID + random.SystemRandom().randrange(spread)

    async def run(self, request: RunCodeRequest, slot: int) -> RunCodeResponse:
        """Compile and run; trouble with the request's files is a SandboxError answer."""
        if request.language not in languages.EXTENSIONS:
            supported = ", ".join(languages.EXTENSIONS)
            return sandbox_error(
                f"language {request.language!r} is not run by this server, only {supported}"
            )
        uid = self._first_uid + slot if self.isolation.identity is Identity.SLOT else None
        try:
            stdin = (request.stdin or "").encode()
            for name in request.fetch_files:
                inside(name)
            workspace = Workspace(self._settings.temp_root, uid)
        except (WorkspaceError, OSError, UnicodeEncodeError) as error:
            return sandbox_error(str(error))
        try:
            return await self._run_in(workspace, uid, request, stdin)
        except WorkspaceError as error:
            return sandbox_error(str(error))
        finally:
            await asyncio.shield(asyncio.to_thread(workspace.remove))

    async def _run_in(
        self, workspace: Workspace, uid: int | None, request: RunCodeRequest, stdin: bytes
    ) -> RunCodeResponse:
        workspace.write_files(request.files)
        source = workspace.write_code(request.code, languages.EXTENSIONS[request.language])
        plan = languages.plan(request.language, source, self._settings.python)
        compiled = ran = None
        if plan.compile is not None:
            # The memory limit is the program's: the compiler may need more than that.
            job = Job(plan.compile, workspace, uid, b"", request.compile_timeout, None)
            compiled = await self.execute(job)
        if compiled is None or compiled.succeeded:
            memory = memory_limit(request.memory_limit_MB)
            job = Job(plan.run, workspace, uid, stdin, request.run_timeout, memory)
            ran = await self.execute(job)
        status, message = overall_status([result for result in (compiled, ran) if result])
        files = {}
        if request.fetch_files:
            files = await asyncio.to_thread(
                workspace.read_files, request.fetch_files, self._settings.fetch_limit_bytes
            )
        return RunCodeResponse(
            status=status,
            message=message,
            compile_result=compiled,
            run_result=ran,
            executor_pod_name=os.environ.get("MY_POD_NAME"),
            files=files,
        )

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
        inside_namespace = self.isolation.own_processes
        script = process.SUPERVISE if inside_namespace else process.REPLACE
        shell = script.replace("{limits}", self._limits(job).shell())
        supervised = ["sh", "-c", shell, "sh", str(folder), *job.argv]
        return Command(
            argv=self.isolation.command(folder, job.uid or 0, supervised),
            env=self._environment(job),
            folder=folder,
            uid=job.uid,
            stdin=job.stdin,
            seconds=job.seconds,
            output_limit=self._settings.output_limit_bytes,
            reports_end=inside_namespace,
        )

    def _limits(self, job: Job) -> Limits:
        shared_user = self.isolation.identity is Identity.SERVER
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


def sandbox_error(message: str) -> RunCodeResponse:
    return RunCodeResponse(
        status=RunStatus.SANDBOX_ERROR,
        message=message,
        executor_pod_name=os.environ.get("MY_POD_NAME"),
    )


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
