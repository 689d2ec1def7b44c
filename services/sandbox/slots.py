"""Slots: long-lived containers that run one program after another.

A slot is made once by the isolation of this machine (``services.sandbox.isolation``). Inside it
runs ``services.sandbox.slot.init``, a warmed interpreter that forks programs. An answer in Python
costs a fork and the clean-up after it instead of namespaces, mounts and an interpreter; a command
starts its own interpreter. A slot that is not clean after a program, or whose init ends, is
replaced.
"""

import asyncio
import json
import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from services.sandbox.isolation import Isolation
from services.sandbox.reaper import Reaper
from services.sandbox.settings import IsolationChoice, SandboxSettings
from services.sandbox.workspace import DiskFullError, Workspace, require_space, reserved
from shared.harness.cases.entry import ONE_THREAD
from shared.harness.cases.processes import is_stopped
from shared.harness.sources import harness_sources, module_source
from shared.service.logs import get_logger

SETUP_SECONDS = 30.0
# In addition to a command's own limit: for the init's clean-up.
REPORT_SECONDS = 30.0
# Bytes of a report, and of what a container prints while it starts.
REPORT_LIMIT = 4096
ERRORS_LIMIT = 8192
# Seconds between two looks at an init that reports nothing.
HEARTBEAT_SECONDS = 0.5

log = get_logger(__name__)


class SlotLostError(Exception):
    """The slot does not start, or ended in the middle of a command."""


class EndReason(StrEnum):
    ENDED = "ended"
    TIMEOUT = "timeout"
    KILLED = "killed"
    OUTPUT_LIMIT = "output limit"
    DISK_LIMIT = "disk limit"
    DISK_FULL = "disk full"


class Order(BaseModel):
    """Order to the init: a command line, the cases of an answer, function tests.

    Attributes:
        seconds: Wall-clock limit.
        cwd: The command's folder, which the server removes.
        compiles: Whether it runs a compiler, which must be able to change attributes of files.
        spec: Specification of function tests; the cases of an answer have it in a file.
        output_limit: Bytes of each output stream of a command, beyond which it is killed.
    """

    kind: Literal["exec", "cases", "functions"]
    seconds: float
    argv: list[str] = []
    cwd: str | None = None
    env: dict[str, str] = {}
    limits: list[tuple[int, int]] = []
    compiles: bool = False
    spec: str = ""
    output_limit: int = 0


class Report(BaseModel):
    """Report of the init after a program: all its processes are dead.

    ``status`` is the exit code, negative after a signal, or None if the program was killed.
    """

    status: int | None
    reason: EndReason
    seconds: float
    clean: bool


@dataclass
class Slot:
    """One container, started when it is first used; one command at a time.

    Attributes:
        modules: Modules that the init loads, if they are installed, besides the usual ones.
        workspace: Folder of the programs, at the same path inside and outside.
        uid: User of the programs; None for the server's own.
        started: How many containers this slot has had.
        covered: What Landlock and seccomp cover in it.
    """

    isolation: Isolation
    settings: SandboxSettings
    reaper: Reaper
    uid: int | None
    modules: Sequence[str] = ()
    workspace: Workspace = field(init=False)
    started: int = 0
    covered: list[str] = field(default_factory=list)
    _control: socket.socket | None = None
    _pid: int = 0
    _work: asyncio.Future[Report] | None = None
    _cleaning: asyncio.Future[None] | None = None
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.workspace = Workspace.create(self.settings.temp_root, self.uid)

    @asynccontextmanager
    async def use(self, *, writes: bool) -> AsyncIterator[Workspace]:
        """Hold the slot for one request, whose traces are removed afterwards.

        The next request waits for that, also after one that was cancelled.

        Args:
            writes: Whether the request has files in the workspace, which only the server removes.

        Raises:
            DiskFullError: Less is left than the reserve.
        """
        if self._cleaning is not None and not self._cleaning.done():
            await asyncio.wait([self._cleaning])
        require_space(self.settings.temp_root, self.settings.disk_reserve_bytes)
        try:
            yield self.workspace
        finally:
            self._cleaning = asyncio.ensure_future(self._clean(writes))
            await asyncio.shield(self._cleaning)

    async def _clean(self, writes: bool) -> None:
        work = self._work
        if work is not None and not work.done():  # the request was cancelled
            await asyncio.wait([work], timeout=REPORT_SECONDS)
            await self._abandon()
        if writes or not self.running:
            await self.clear()

    async def _abandon(self) -> None:
        """Close the container if a command is still running in it."""
        if self._work is not None and not self._work.done():
            self._work.cancel()  # it reads from the socket that is closed then
            await asyncio.wait([self._work])
            await self.close()

    async def run(self, order: Order, fds: Sequence[int]) -> Report:
        """Run a command with copies of the descriptors ``fds``: input and outputs.

        Raises:
            SlotLostError: The container does not start, or ended before the command.
            DiskFullError: The disk that all slots share was full during the command.
        """
        try:
            control = await self.ready()
            socket.send_fds(control, [order.model_dump_json().encode()], list(fds))
        except OSError as error:
            await asyncio.shield(self.close())
            raise SlotLostError(f"cannot reach the slot: {error}") from error
        self._work = work = asyncio.ensure_future(self._report(control, order.seconds))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            with suppress(OSError):  # of a slot that is already gone
                control.send(b'{"kind": "kill"}')
            raise

    async def ready(self) -> socket.socket:
        """Start the container unless it runs; return the control socket.

        Raises:
            SlotLostError: It does not start; the message has the reason.
        """
        async with self._starting:
            if self._control is None:
                try:
                    await self._start()
                except BaseException as error:
                    await asyncio.shield(self.close())
                    if isinstance(error, OSError):
                        raise SlotLostError(f"cannot start the slot: {error}") from error
                    raise
            assert self._control is not None
            return self._control

    @property
    def running(self) -> bool:
        return self._control is not None

    async def clear(self) -> None:
        """Empty the workspace; replace a slot that would tell the next program about this one."""
        clean = await asyncio.to_thread(self.workspace.clear)
        if not clean:
            log.warning("workspace is not clean after a program, replaced", pid=self._pid)
            await self.close()
            await asyncio.to_thread(self.workspace.remove)
            self.workspace = Workspace.create(self.settings.temp_root, self.uid)

    async def close(self) -> None:
        """Kill the container and everything in it."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._pid:
            pid, self._pid = self._pid, 0
            orphans = not self.isolation.own_processes
            await self.reaper.end(pid, orphans=orphans, user=self.uid)

    async def remove(self) -> None:
        """End the slot for good."""
        await self._abandon()
        await self.close()
        await asyncio.to_thread(self.workspace.remove)

    async def _report(self, control: socket.socket, seconds: float) -> Report:
        message = b"?"
        try:
            message = await self._receive(control, max(0.0, seconds) + REPORT_SECONDS)
            report = Report.model_validate_json(message)
        except (OSError, TimeoutError, ValidationError) as error:
            await self.close()
            reason = type(error).__name__ if message else "it was killed"
            raise SlotLostError(f"the slot ended in the middle of a program: {reason}") from error
        if not report.clean:
            log.warning("slot is not clean after a program, replaced", pid=self._pid)
            await self.close()
        if report.reason is EndReason.DISK_FULL:
            raise DiskFullError(self.settings.temp_root)
        return report

    async def _receive(self, control: socket.socket, seconds: float) -> bytes:
        """Receive a message; nothing if a program has stopped the container's first process.

        A message that has arrived counts, however late this loop gets to it.

        Raises:
            TimeoutError: There was none within ``seconds``.
        """
        loop, fd, arrived = asyncio.get_running_loop(), control.fileno(), asyncio.Event()
        give_up = loop.time() + seconds
        loop.add_reader(fd, arrived.set)
        try:
            while True:
                left = give_up - loop.time()
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(HEARTBEAT_SECONDS, max(0.0, left))):
                        await arrived.wait()
                try:
                    return control.recv(REPORT_LIMIT)
                except BlockingIOError:
                    arrived.clear()
                if left <= 0:
                    raise TimeoutError
                if is_stopped(self._pid):
                    return b""
        finally:
            loop.remove_reader(fd)

    async def _start(self) -> None:
        if self.workspace.path.is_dir():
            self.workspace.restore()  # the last container may have ended in the middle of a program
        else:  # removed by a cleaner of temporary files, say
            self.workspace = Workspace.create(self.settings.temp_root, self.uid)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._control = ours
        errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed below)
        with theirs, errors:
            self._pid = self._spawn(theirs.fileno(), errors.fileno())
            self.reaper.add(self._pid)
            theirs.close()
            self.started += 1
            try:
                ready = await self._receive(ours, SETUP_SECONDS)
            except ConnectionResetError:
                ready = b""
            except TimeoutError:
                raise SlotLostError(f"no slot after {SETUP_SECONDS:.0f} s") from None
            if not ready:
                errors.seek(0)
                raise SlotLostError(_reason(errors.read(ERRORS_LIMIT)))
            self.covered = json.loads(ready)["ready"]

    def _spawn(self, control: int, errors: int) -> int:
        boot = [str(self.settings.python), "-c", _source("boot"), "plumbline-slot"]
        argv = self.isolation.command(self.workspace.path, self.uid or 0, boot)
        with os.fdopen(os.memfd_create("program"), "wb") as program:
            program.write(json.dumps(self._program()).encode())
            program.seek(0)
            # posix_spawn instead of subprocess: it never copies the server's memory. A new session
            # makes the process group killable. The container must not inherit Python's SIG_IGN.
            return os.posix_spawnp(
                argv[0],
                argv,
                environment(self.isolation, self.settings, self.workspace.path),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, program.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, errors, 2),
                    (os.POSIX_SPAWN_DUP2, control, 3),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )

    def _program(self) -> dict[str, object]:
        """Return the modules that the container's interpreter loads, and the init's settings."""
        isolation, folder = self.isolation, self.workspace.path
        return {
            "modules": {
                **harness_sources(functions=True),
                "shared.harness.confinement": _source("confinement"),
                "services.sandbox.slot.init": _source("init"),
            },
            "settings": {
                "owns_processes": isolation.own_processes,
                "scratch": str(isolation.scratch(folder)),
                "folder": str(folder),
                "disk_limit": self.settings.disk_limit_bytes,
                "disk_reserve": reserved(folder, self.settings.disk_reserve_bytes),
                "roots": [str(path) for path in isolation.shared_folders(folder)],
                "warm": list(self.modules),
                "own_user": isolation.shares_folders and self.uid is not None,
                "keep": [str(path) for path in (folder, *folder.parents)],
                "profiles": isolation.seccomp_profiles(),
                "required": isolation.kind is not IsolationChoice.NONE,
                "landlock": isolation.kind is IsolationChoice.LANDLOCK,
                "readonly": [str(path) for path in isolation.view.landlock_readable()],
                "writable": [str(path) for path in isolation.writable(folder)],
            },
        }


def environment(isolation: Isolation, settings: SandboxSettings, home: Path) -> dict[str, str]:
    """The environment of programs, whose own folder is ``home``."""
    without_mounts = {}
    if isolation.kind is IsolationChoice.LANDLOCK:  # /tmp and /dev/shm are not writable
        without_mounts = {"TMPDIR": str(home), "PYTHONPATH": str(isolation.view.modules)}
    return {
        **without_mounts,
        "PATH": search_path(settings),
        "LANG": "C.UTF-8",
        "HOME": str(home),
        # Most of these users have no name, which some programs ask for.
        "USER": "program",
        "PYTHONDONTWRITEBYTECODE": "1",
        # A fixed seed: otherwise the order of sets, and so the verdict of some programs, would
        # differ from run to run.
        "PYTHONHASHSEED": "0",
        **ONE_THREAD,
    }


def search_path(settings: SandboxSettings) -> str:
    """The folders of commands, separated by ``:``."""
    return f"{settings.python.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def _reason(errors: bytes) -> str:
    """Return what a container printed in its last moments, in one line."""
    lines = errors.decode(errors="replace").split("\n")
    lines = [line.strip() for line in lines if line.strip()]
    if any(line.startswith("Traceback") for line in lines):
        lines = lines[-1:]
    return "; ".join(lines) or "the slot ended while it started"


def _source(name: str) -> str:
    shared = name == "confinement"
    return module_source("shared.harness" if shared else "services.sandbox.slot", name)
