"""Runner of requests: compile and run programs in slots, each in a separate workspace.

The slot's init starts a program, feeds and drains its pipes, enforces the limits of time and
output, kills everything that the program started, and reports its end. What goes in and comes out
lies in unnamed files in memory, so nothing about a program depends on when this process gets to it.

The languages of ``/run_code`` are those of the table (``shared.harness.languages``), and the shell.
Commands are the table's, except that C++ is compiled as SandboxFusion does it, and JavaScript not
at all. A command under a shell's exit code 126 or 127 could not be executed.
"""

import asyncio
import os
import random
import resource
import secrets
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from services.sandbox.isolation import Identity, Isolation
from services.sandbox.reaper import Reaper
from services.sandbox.settings import SandboxSettings
from services.sandbox.slots import (
    EndReason,
    Order,
    Report,
    Slot,
    SlotLostError,
    environment,
    search_path,
)
from services.sandbox.workspace import FIRST_UID, LAST_UID, WorkspaceError
from shared.harness import wire
from shared.harness.cases.files import write_all
from shared.harness.languages import DEFAULT_HEAP, LANGUAGES, MIB
from shared.harness.sandbox_api import (
    CommandResult,
    CommandStatus,
    Language,
    RunCodeRequest,
    RunCodeResponse,
    RunStatus,
    overall_status,
)
from shared.harness.wire import CallResult, RunCasesRequest
from shared.service.logs import get_logger
from shared.text import shorten_end

Result = TypeVar("Result")

log = get_logger(__name__)

# Modules that a second container of a slot has loaded, for function tests that use them: to load
# them takes ten times as long as such tests do, but makes every fork slower.
LARGE_MODULES = ("numpy", "numpy.testing")
# A program that ends its slot twice is at fault itself.
ATTEMPTS = 2
LONGEST_MESSAGE = 1000  # of an error, which may quote a path of the request


class Runner:
    """Runs requests under one isolation. Concurrent requests must be given different slots.

    Attributes:
        languages: The languages whose compilers and interpreters are installed.
    """

    def __init__(self, settings: SandboxSettings, isolation: Isolation, reaper: Reaper) -> None:
        self.isolation = isolation
        self._settings = settings
        self._reaper = reaper
        self._slots: dict[tuple[int, bool], Slot] = {}
        self.languages = installed(search_path(settings))
        # Process limits count per user on the whole machine: two servers on one machine should use
        # different users.
        spread = max(1, LAST_UID - FIRST_UID - 2 * settings.concurrency)
        self._first_uid = FIRST_UID + random.SystemRandom().randrange(spread)

    async def run(self, request: RunCodeRequest, slot: int) -> RunCodeResponse:
        """Compile and run.

        A request whose slot is lost starts again from its beginning. The response has the status
        SandboxError if the request's files cannot be written or read, or no slot can run it.
        """
        if request.language not in self.languages:
            return sandbox_error(refusal(request.language, search_path(self._settings)))
        reason = ""
        for _ in range(ATTEMPTS):
            try:
                stdin = (request.stdin or "").encode()
                container = self._slot(slot)
                async with container.use(writes=True):
                    return await self._run_in(container, request, stdin)
            except (WorkspaceError, OSError, UnicodeEncodeError) as error:
                return sandbox_error(str(error))
            except SlotLostError as error:
                reason = str(error)
                log.warning("slot lost", reason=reason)
        return sandbox_error(reason)

    async def run_cases(self, request: RunCasesRequest, slot: int) -> CallResult:
        """Run an answer on its inputs; a result without ``end`` is incomplete.

        Raises:
            SlotLostError: The slot does not start.
        """
        single = request.language == wire.FUNCTIONS and len(request.inputs) == 1
        container = self._slot(slot, large=single and LARGE_MODULES[0] in request.inputs[0])
        if self.isolation.identity is Identity.SERVER:
            # The limit would include the processes of all slots, and of the server.
            limits = replace(request.limits, processes=0)
            request = request.model_copy(update={"limits": limits})
        for _ in range(ATTEMPTS):
            async with container.use(writes=False):
                await container.ready()
                try:
                    return await self._run_cases_in(container, request, single)
                except SlotLostError as error:
                    log.warning("slot lost", reason=str(error))
        return CallResult()  # the answer ends every slot

    @property
    def covered(self) -> list[str]:
        """Protections by Landlock and seccomp in a slot; empty before the first one started."""
        return next((slot.covered for slot in self._slots.values()), [])

    async def warm(self) -> None:
        """Start the containers of all slots."""
        for slot in range(self._settings.concurrency):
            try:
                await self._slot(slot).ready()
            except SlotLostError as error:
                log.warning("slot does not start", slot=slot, reason=str(error))

    async def close(self) -> None:
        """End all slots."""
        for slot in self._slots.values():
            await slot.remove()
        self._slots.clear()

    def _slot(self, number: int, *, large: bool = False) -> Slot:
        """Return the container of a slot, or its second one with the ``LARGE_MODULES``."""
        if (number, large) not in self._slots:
            own = self.isolation.identity is Identity.SLOT
            user = self._first_uid + number + self._settings.concurrency * large
            modules = LARGE_MODULES if large else ()
            self._slots[number, large] = Slot(
                self.isolation, self._settings, self._reaper, user if own else None, modules
            )
        return self._slots[number, large]

    async def _run_in(self, slot: Slot, request: RunCodeRequest, stdin: bytes) -> RunCodeResponse:
        workspace = slot.workspace
        if request.files or request.fetch_files:  # so many that the event loop would stand still
            await _in_thread(workspace.prepare, request.files, request.fetch_files)
        source = workspace.write_code(request.code, file_name(request.language, request.code))
        memory = request.memory_limit_MB * MIB
        memory = memory if 0 < memory < 2**62 else 0
        commands = commands_of(request.language, source, memory, self._settings.python)
        results = []
        if commands.compile is not None:
            # The limit of memory applies to the program only: the compiler may need more.
            compiler = replace(commands, run=commands.compile, limits=())
            seconds = request.compile_timeout
            results.append(await run_command(slot, compiler, b"", seconds, compiles=True))
        compiled = results[0] if results else None
        if compiled is None or compiled.succeeded:
            results.append(await run_command(slot, commands, stdin, request.run_timeout))
        status, message = overall_status(results)
        files = {}
        if request.fetch_files:
            limit = self._settings.fetch_limit_bytes
            files = await _in_thread(workspace.read_files, request.fetch_files, limit)
        return RunCodeResponse(
            status=status,
            message=message,
            compile_result=compiled,
            run_result=results[-1] if results[-1] is not compiled else None,
            executor_pod_name=os.environ.get("MY_POD_NAME"),
            files=files,
        )

    async def _run_cases_in(self, slot: Slot, request: RunCasesRequest, single: bool) -> CallResult:
        call = wire.encode_call(request)
        order = Order(kind="cases", seconds=request.limits.call)
        if single:  # the tests run in a child of the slot's init
            order.kind, order.spec = "functions", call.partition(b"\n")[0].decode()
        inputs = "".join(request.inputs).encode()
        most = wire.longest_results(request.limits)
        report, (records,) = await run_order(slot, order, [call, inputs], [most])
        result = wire.decode_results(records)
        if report.status == -signal.SIGALRM and result.compiled is None:
            result = CallResult("timeout", end="compile", compile_seconds=request.limits.compile)
        result.seconds = report.seconds
        return result


async def _in_thread(function: Callable[..., Result], *arguments: object) -> Result:
    """Call a function of a workspace, which is not cleared before its end."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    finally:
        if not work.done():  # the request was cancelled
            await asyncio.wait([work])


def sandbox_error(message: str) -> RunCodeResponse:
    return RunCodeResponse(
        status=RunStatus.SANDBOX_ERROR,
        message=shorten_end(message, LONGEST_MESSAGE),
        executor_pod_name=os.environ.get("MY_POD_NAME"),
    )


# Commands


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands for one program, in its folder.

    Attributes:
        limits: Kinds and values of resource limits in addition to those of all commands.
        variables: Variables of both commands in addition to those of all programs.
    """

    compile: list[str] | None
    run: list[str]
    limits: Sequence[tuple[int, int]]
    variables: Mapping[str, str] = field(default_factory=dict)


async def run_command(
    slot: Slot, commands: Commands, stdin: bytes, seconds: float, *, compiles: bool = False
) -> CommandResult:
    """Run a command in the workspace of a slot; no process of it is left after a return.

    The status is ``Error`` if the sandbox itself fails. RLIMIT_STACK is unchanged: it is also the
    default stack size of threads, and with a large one every thread creation fails.

    Args:
        slot: The slot.
        commands: The command is ``run``.
        stdin: Its standard input.
        seconds: Wall-clock limit.
        compiles: Whether it is a compiler.

    Raises:
        SlotLostError: The slot ended; what the command left must not be used.
    """
    if seconds <= 0:  # started, it might write something before it is killed
        status = CommandStatus.TIME_LIMIT_EXCEEDED
        return CommandResult(status=status, execution_time=0.0, stdout="", stderr="")
    settings, folder = slot.settings, slot.workspace.path
    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, settings.file_limit_bytes),
        (resource.RLIMIT_NOFILE, settings.open_files_limit),
    ]
    # For the server's own user the limit would include the server's other processes.
    if slot.isolation.identity is not Identity.SERVER:
        limits.append((resource.RLIMIT_NPROC, settings.process_limit))
    own = environment(slot.isolation, settings, folder)
    order = Order(
        kind="exec",
        seconds=seconds,
        argv=commands.run,
        cwd=str(folder),
        env={**own, "PWD": str(folder), **commands.variables},
        limits=[*limits, *commands.limits],
        compiles=compiles,
        output_limit=settings.output_limit_bytes,
    )
    try:
        report, outputs = await run_order(slot, order, [stdin], [order.output_limit] * 2)
        stdout, stderr = map(_decode, outputs)
    except (OSError, ValueError) as error:
        message = f"the sandbox could not start {' '.join(commands.run)}: {error}"
        return CommandResult(status=CommandStatus.ERROR, stderr=message)
    if report.reason is EndReason.OUTPUT_LIMIT:
        stderr += f"\noutput limit of {order.output_limit} bytes exceeded\n"
    if report.reason is EndReason.DISK_LIMIT:
        stderr += f"\ndisk limit of {settings.disk_limit_bytes} bytes exceeded\n"
    late = report.reason is EndReason.TIMEOUT
    killed = report.status is None and not late
    return CommandResult(
        status=CommandStatus.TIME_LIMIT_EXCEEDED if late else CommandStatus.FINISHED,
        execution_time=report.seconds,
        return_code=-signal.SIGKILL if killed else report.status,
        stdout=stdout,
        stderr=stderr,
    )


async def run_order(
    slot: Slot, order: Order, inputs: Sequence[bytes], limits: Sequence[int]
) -> tuple[Report, list[bytes]]:
    """Run an order with unnamed files in memory: its inputs, and outputs of at most ``limits``.

    Raises:
        OSError: The files could not be created.
        SlotLostError: The slot ended before the program did.
    """
    with ExitStack() as stack:
        files = []
        for _ in (*inputs, *limits):
            files.append(os.memfd_create("file"))
            stack.callback(os.close, files[-1])
        for fd, data in zip(files, inputs, strict=False):
            write_all(fd, data)
            os.lseek(fd, 0, os.SEEK_SET)
        report = await slot.run(order, files)
        outputs = zip(files[len(inputs) :], limits, strict=True)
        return report, [os.pread(fd, min(os.fstat(fd).st_size, most), 0) for fd, most in outputs]


def _decode(stream: bytes) -> str:
    try:
        return stream.decode()
    except UnicodeDecodeError as error:
        return f"[DecodeError] {error}"


# Languages

# Endings of programs whose file may have any name.
_ANY_NAME = {"python": "py", "bash": "sh", "cpp": "cpp"}


def file_name(language: Language, code: str) -> str:
    """Return a name for a program's file."""
    if language in _ANY_NAME:
        return f"tmp{secrets.token_hex(4)}.{_ANY_NAME[language]}"
    return LANGUAGES[language].file_of(code)


def commands_of(name: Language, source: Path, memory: int, python: Path) -> Commands:
    """Return the commands for a program; ``memory`` is its limit in bytes, 0 for none."""
    limits = [(kind, memory) for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS) if memory]
    if name in ("bash", "python"):
        return Commands(None, [name if name == "bash" else str(python), str(source)], limits)
    if name == "cpp":
        compiler = ["g++", "-std=c++17", str(source), "-o", "test", "-lpthread"]
        return Commands(compiler, ["./test"], limits)
    language = LANGUAGES[name]
    run = language.program(source.name, "./program", memory)
    if language.classes:
        run = [*run[: run.index("-jar")], source.stem]
    if language.runtime_mib is not None:
        limits = [(resource.RLIMIT_DATA, language.data_limit(memory or DEFAULT_HEAP * MIB))]
    variables = language.variables(str(source.parent), memory)
    compile_command = None if name == "nodejs" else language.compiler(source.name)
    return Commands(compile_command, run, limits, variables)


def installed(path: str) -> list[Language]:
    """Return the languages whose programs are installed in the folders of ``path``."""
    names = dict.fromkeys(("python", "bash", *LANGUAGES))
    return [name for name in names if _is_installed(name, path)]  # type: ignore[misc]


def refusal(name: Language, path: str) -> str:
    """Return why the server does not run a language."""
    if name in LANGUAGES:
        return f"{name} is not installed in this sandbox; install {LANGUAGES[name].packages}"
    return f"this server does not run {name!r}, only {', '.join(installed(path))}"


def _is_installed(name: str, path: str) -> bool:
    tools = LANGUAGES[name].tools if name in LANGUAGES else ()
    return all(shutil.which(program, path=path) for program in tools)
