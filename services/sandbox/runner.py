"""A request's program from its files to its answer."""

import asyncio
import os
import random
from dataclasses import dataclass

from services.sandbox import languages
from services.sandbox.isolation import Identity, Isolation
from services.sandbox.jobs import Job, Jobs
from services.sandbox.limits import memory_limit
from services.sandbox.reaper import Reaper
from services.sandbox.schemas import (
    CommandResult,
    RunCodeRequest,
    RunCodeResponse,
    RunStatus,
    overall_status,
)
from services.sandbox.settings import SandboxSettings
from services.sandbox.workspace import Workspace, WorkspaceError, inside

FIRST_UID, LAST_UID = 61000, 64999  # free by Debian's and systemd's conventions


@dataclass(frozen=True)
class Program:
    """A program in its folder, compiled if its language needs that.

    Attributes:
        compiled: How compiling went, None where there is nothing to compile.
        argv: What runs it; if it was compiled, in any folder with a copy of it.
    """

    workspace: Workspace
    compiled: CommandResult | None
    argv: list[str]

    @property
    def can_run(self) -> bool:
        return self.compiled is None or self.compiled.succeeded


class Runner:
    """Runs requests under one isolation. Two requests at once must be given different slots."""

    def __init__(self, settings: SandboxSettings, isolation: Isolation, reaper: Reaper) -> None:
        self.isolation = isolation
        self._settings = settings
        self._jobs = Jobs(settings, isolation, reaper)
        # Limits of processes count per user on the whole machine, so servers side by side
        # had better not use the same ones.
        spread = max(1, LAST_UID - FIRST_UID - settings.concurrency)
        self._first_uid = FIRST_UID + random.SystemRandom().randrange(spread)

    async def run(
        self, request: RunCodeRequest, slot: int, program: Program | None = None
    ) -> RunCodeResponse:
        """Compile, unless the program is given, and run.

        Trouble with the request's files is a SandboxError answer.
        """
        if request.language not in languages.EXTENSIONS:
            supported = ", ".join(languages.EXTENSIONS)
            return sandbox_error(
                f"language {request.language!r} is not run by this server, only {supported}"
            )
        uid = self._uid(slot)
        try:
            stdin = (request.stdin or "").encode()
            for name in request.fetch_files:
                inside(name)
            workspace = Workspace(self._settings.temp_root, uid)
        except (WorkspaceError, OSError, UnicodeEncodeError) as error:
            return sandbox_error(str(error))
        try:
            workspace.write_files(request.files)
            if program is None:
                program = await self._compile_in(workspace, uid, request)
            elif program.can_run:
                await asyncio.to_thread(workspace.copy_file, program.workspace, languages.PROGRAM)
            return await self._run_in(workspace, uid, request, stdin, program)
        except WorkspaceError as error:
            return sandbox_error(str(error))
        finally:
            await asyncio.shield(asyncio.to_thread(workspace.remove))

    async def compile(self, request: RunCodeRequest, slot: int) -> Program:
        """Compile for runs to come; the caller removes the workspace after them.

        Raises:
            WorkspaceError: The code cannot be written.
        """
        uid = self._uid(slot)
        try:
            workspace = Workspace(self._settings.temp_root, uid)
        except OSError as error:
            raise WorkspaceError(str(error)) from error
        try:
            program = await self._compile_in(workspace, uid, request)
            workspace.take_back()
        except BaseException:
            await asyncio.shield(asyncio.to_thread(workspace.remove))
            raise
        return program

    async def _compile_in(
        self, workspace: Workspace, uid: int | None, request: RunCodeRequest
    ) -> Program:
        source = workspace.write_code(request.code, languages.EXTENSIONS[request.language])
        plan = languages.plan(request.language, source, self._settings.python)
        compiled = None
        if plan.compile is not None:
            # The memory limit is the program's: the compiler may need more than that.
            job = Job(plan.compile, workspace, uid, b"", request.compile_timeout, None)
            compiled = await self._jobs.execute(job)
        return Program(workspace, compiled, plan.run)

    async def _run_in(
        self,
        workspace: Workspace,
        uid: int | None,
        request: RunCodeRequest,
        stdin: bytes,
        program: Program,
    ) -> RunCodeResponse:
        compiled, ran = program.compiled, None
        if program.can_run:
            memory = memory_limit(request.memory_limit_MB)
            job = Job(program.argv, workspace, uid, stdin, request.run_timeout, memory)
            ran = await self._jobs.execute(job)
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

    def _uid(self, slot: int) -> int | None:
        return self._first_uid + slot if self.isolation.identity is Identity.SLOT else None


def sandbox_error(message: str) -> RunCodeResponse:
    return RunCodeResponse(
        status=RunStatus.SANDBOX_ERROR,
        message=message,
        executor_pod_name=os.environ.get("MY_POD_NAME"),
    )
