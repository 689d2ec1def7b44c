"""Runner of requests: compile and run programs in slots, each in a separate workspace.

The languages of ``/run_code`` are those of the table (``shared.harness.languages``), and the shell.
Commands are the table's, except that C++ is compiled as SandboxFusion does it.
"""

import asyncio
import os
import random
import resource
import secrets
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

from services.sandbox.isolation import Identity, Isolation
from services.sandbox.process import run_cases, run_command
from services.sandbox.reaper import Reaper
from services.sandbox.settings import SandboxSettings
from services.sandbox.slots import Slot, SlotLostError, search_path
from services.sandbox.workspace import (
    FIRST_UID,
    LAST_UID,
    WorkspaceError,
    relative_parts,
)
from shared.harness.languages import DEFAULT_HEAP, LANGUAGES, MIB
from shared.harness.sandbox_api import (
    Language,
    RunCodeRequest,
    RunCodeResponse,
    RunStatus,
    overall_status,
)
from shared.harness.wire import CallResult, RunCasesRequest
from shared.service.logs import get_logger
from shared.text import shorten_end

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
                for name in request.fetch_files:
                    relative_parts(name)
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
        """Run an answer on its inputs.

        Raises:
            SlotLostError: The slot does not start.
        """
        large = request.language == "functions" and LARGE_MODULES[0] in "".join(request.inputs)
        container = self._slot(slot, large=large and len(request.inputs) == 1)
        if self.isolation.identity is Identity.SERVER:
            # The limit would include the processes of all slots, and of the server.
            limits = replace(request.limits, processes=0)
            request = request.model_copy(update={"limits": limits})
        for _ in range(ATTEMPTS):
            async with container.use(writes=False):
                await container.ready()
                try:
                    return await run_cases(request, container)
                except SlotLostError as error:
                    log.warning("slot lost", reason=str(error))
        return CallResult()  # incomplete: the answer ends every slot

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

    async def _run_in(self, slot: Slot, request: RunCodeRequest, stdin: bytes) -> RunCodeResponse:
        workspace = slot.workspace
        workspace.write_files(request.files)
        source = workspace.write_code(request.code, file_name(request.language, request.code))
        memory = memory_limit(request.memory_limit_MB)
        commands = commands_of(request.language, source, memory, self._settings.python)
        compiled = ran = None
        variables = commands.variables
        if commands.compile is not None:
            # The limit of memory applies to the program only: the compiler may need more.
            seconds = request.compile_timeout
            compiled = await run_command(
                slot, commands.compile, b"", seconds, [], variables, compiles=True
            )
        if compiled is None or compiled.succeeded:
            limits = []
            if commands.data_limit is not None:
                limits = [(resource.RLIMIT_DATA, commands.data_limit)]
            elif memory is not None:
                limits = [(resource.RLIMIT_DATA, memory), (resource.RLIMIT_AS, memory)]
            seconds = request.run_timeout
            ran = await run_command(slot, commands.run, stdin, seconds, limits, variables)
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


def memory_limit(megabytes: int) -> int | None:
    """Convert ``memory_limit_MB`` to bytes; None (no limit) if not positive or above 2^62."""
    limit = megabytes * MIB
    return limit if 0 < limit < 2**62 else None


def sandbox_error(message: str) -> RunCodeResponse:
    return RunCodeResponse(
        status=RunStatus.SANDBOX_ERROR,
        message=shorten_end(message, LONGEST_MESSAGE),
        executor_pod_name=os.environ.get("MY_POD_NAME"),
    )


# Languages

# Endings of programs whose file may have any name.
_ANY_NAME = {"python": "py", "bash": "sh", "cpp": "cpp"}


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands for one program, in its folder.

    Attributes:
        variables: Variables of both commands.
        data_limit: Bytes that the program may write to, in place of a limit of its address space.
    """

    compile: list[str] | None
    run: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    data_limit: int | None = None


def file_name(language: Language, code: str) -> str:
    """Return a name for a program's file."""
    if language in _ANY_NAME:
        return f"tmp{secrets.token_hex(4)}.{_ANY_NAME[language]}"
    return LANGUAGES[language].file_of(code)


def commands_of(name: Language, source: Path, memory: int | None, python: Path) -> Commands:
    """Return the commands for a program; ``memory`` is its limit in bytes."""
    if name in ("bash", "python"):
        return Commands(None, [name if name == "bash" else str(python), str(source)])
    language = LANGUAGES[name]
    variables = language.variables(str(source.parent), memory or 0)
    if name == "cpp":
        compiler = ["g++", "-std=c++17", str(source), "-o", "test", "-lpthread"]
        return Commands(compiler, ["./test"])
    run = language.program(source.name, "./program", memory or 0)
    if language.classes:
        run = [*run[: run.index("-jar")], source.stem]
    limit = None
    if language.runtime_mib is not None:
        limit = language.data_limit(memory or DEFAULT_HEAP * MIB)
    return Commands(language.compiler(source.name), run, variables, limit)


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
