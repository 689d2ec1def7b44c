"""Runner of requests: compile and run a program in a separate workspace."""

import asyncio
import os
import random
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from services.sandbox.commands import CommandRunner, CommandSpec, memory_limit
from services.sandbox.isolation import Identity, Isolation
from services.sandbox.reaper import Reaper
from services.sandbox.schemas import (
    CommandResult,
    RunCodeRequest,
    RunCodeResponse,
    RunStatus,
    overall_status,
)
from services.sandbox.settings import SandboxSettings
from services.sandbox.workspace import Workspace, WorkspaceError, relative_parts

EXTENSIONS = {"python": "py", "bash": "sh", "cpp": "cpp"}
PROGRAM = "test"  # the compiled program in its folder
CPP_LIBRARIES = ("crypto", "ssl", "pthread")
FIRST_UID, LAST_UID = 61000, 64999  # free by Debian's and systemd's conventions


@dataclass(frozen=True)
class Program:
    """A program in its folder, compiled if its language needs that.

    Attributes:
        compiled: Result of compiling, None for an interpreted language.
        argv: Command line; a compiled program runs in any folder that has a copy of it.
    """

    workspace: Workspace
    compiled: CommandResult | None
    argv: list[str]

    @property
    def can_run(self) -> bool:
        return self.compiled is None or self.compiled.succeeded


class Runner:
    """Runs requests under one isolation. Concurrent requests must be given different slots."""

    def __init__(self, settings: SandboxSettings, isolation: Isolation, reaper: Reaper) -> None:
        self.isolation = isolation
        self._settings = settings
        self._commands = CommandRunner(settings, isolation, reaper)
        # Process limits count per user on the whole machine: two servers on one machine should use
        # different users.
        spread = max(1, LAST_UID - FIRST_UID - settings.concurrency)
        self._first_uid = FIRST_UID + random.SystemRandom().randrange(spread)

    async def run(
        self, request: RunCodeRequest, slot: int, program: Program | None = None
    ) -> RunCodeResponse:
        """Compile, unless ``program`` is given, and run.

        The response has the status SandboxError if the request's files cannot be written or read.
        """
        if request.language not in EXTENSIONS:
            supported = ", ".join(EXTENSIONS)
            return sandbox_error(f"this server does not run {request.language!r}, only {supported}")
        uid = self._uid(slot)
        try:
            stdin = (request.stdin or "").encode()
            for name in request.fetch_files:
                relative_parts(name)
            workspace = Workspace(self._settings.temp_root, uid)
        except (WorkspaceError, OSError, UnicodeEncodeError) as error:
            return sandbox_error(str(error))
        try:
            workspace.write_files(request.files)
            if program is None:
                program = await self._compile_in(workspace, uid, request)
            elif program.can_run:
                await asyncio.to_thread(workspace.copy_file, program.workspace, PROGRAM)
            return await self._run_in(workspace, uid, request, stdin, program)
        except WorkspaceError as error:
            return sandbox_error(str(error))
        finally:
            await asyncio.shield(asyncio.to_thread(workspace.remove))

    async def compile(self, request: RunCodeRequest, slot: int) -> Program:
        """Compile for later runs; the caller removes the workspace afterwards.

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
            workspace.reclaim()
        except BaseException:
            await asyncio.shield(asyncio.to_thread(workspace.remove))
            raise
        return program

    async def _compile_in(
        self, workspace: Workspace, uid: int | None, request: RunCodeRequest
    ) -> Program:
        source = workspace.write_code(request.code, EXTENSIONS[request.language])
        argvs = _argvs(request.language, source, self._settings.python)
        compiled = None
        if argvs.compile is not None:
            # The memory limit applies to the program only: the compiler may need more.
            spec = CommandSpec(argvs.compile, workspace, uid, b"", request.compile_timeout, None)
            compiled = await self._commands.execute(spec)
        return Program(workspace, compiled, argvs.run)

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
            spec = CommandSpec(program.argv, workspace, uid, stdin, request.run_timeout, memory)
            ran = await self._commands.execute(spec)
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


# Languages.


@dataclass(frozen=True)
class _Argvs:
    """The command lines for one program, in its folder."""

    compile: list[str] | None
    run: list[str]


def _argvs(language: str, source: Path, python: Path) -> _Argvs:
    """The command lines for ``source``; ``language`` is a key of ``EXTENSIONS``."""
    if language == "cpp":
        links = [f"-l{library}" for library in _cpp_libraries()]
        return _Argvs(["g++", "-std=c++17", str(source), "-o", PROGRAM, *links], [f"./{PROGRAM}"])
    interpreter = str(python) if language == "python" else "bash"
    return _Argvs(None, [interpreter, str(source)])


@cache
def _cpp_libraries() -> tuple[str, ...]:
    """The libraries that programs may expect, as far as this machine can link them."""
    if shutil.which("g++") is None:
        return ()
    return tuple(library for library in CPP_LIBRARIES if _can_link(library))


def _can_link(library: str) -> bool:
    for suffix in ("so", "a"):
        # g++ prints a full path if it finds the file, otherwise it repeats the name.
        command = ["g++", f"-print-file-name=lib{library}.{suffix}"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if Path(answer.stdout.strip()).is_absolute():
            return True
    return False
