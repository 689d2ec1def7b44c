"""Supervisor of child processes: readiness, restart after a crash, graceful shutdown.

Children run in sessions of their own, so that Ctrl-C reaches the parent alone, and the kernel
signals them when the parent dies (PR_SET_PDEATHSIG).
"""

import asyncio
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from shared.errors import ServiceError
from shared.service.processes import die_with_parent

GRACE_SECONDS = 5.0
# A service that runs for weeks may crash more often than one that cannot start.
_CRASH_LOOP_SECONDS = 300.0


class Process(Protocol):
    """The part of ``subprocess.Popen`` that supervision needs."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


# Starts a child's process in another way than executing its command; the file is its output, the
# descriptor the writing end of the pipe for its port. None if this way is closed.
Spawn = Callable[["ChildProcess", IO[bytes], int], Process | None]


@dataclass
class ChildProcess:
    """A child process and its launch settings.

    Attributes:
        name: Name in messages.
        command: Command line.
        log: File that the output is appended to.
        environment: The complete environment.
        stdin: Text written to standard input.
        inherited_fds: File descriptors that the child inherits.
        death_signal: Signal that the kernel sends the child when this process dies.
        grace: Seconds between SIGTERM and SIGKILL.
        fatal_exit_code: Exit code that means invalid settings; the child is not restarted then.
        max_restarts: Number of restarts within ``crash_loop`` seconds after which another crash
            is an error.
        restarts: Number of restarts so far.
        process: The running process.
        port: The port that the child announced; a restarted child listens on it again.
    """

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    stdin: str = ""
    inherited_fds: Sequence[int] = ()
    death_signal: signal.Signals = signal.SIGTERM
    grace: float = GRACE_SECONDS
    fatal_exit_code: int = 2
    max_restarts: int = 10
    crash_loop: float = _CRASH_LOOP_SECONDS
    restarts: int = 0
    process: Process | None = field(default=None, repr=False)
    port: int | None = None
    _announcement: IO[bytes] | None = field(default=None, repr=False)
    _restarted_at: list[float] = field(default_factory=list, repr=False)

    def start(self, spawn: Spawn | None = None) -> None:
        """Start the process: by ``spawn`` if that is possible, else by executing the command.

        Raises:
            ServiceError: The program cannot be executed.
        """
        reader, writer = os.pipe()
        self._announcement = os.fdopen(reader, "rb", buffering=0)
        try:
            with self.log.open("ab") as log:
                self.process = spawn(self, log, writer) if spawn else None
                self.process = self.process or self._execute(log, writer)
        finally:
            os.close(writer)

    def _execute(self, log: IO[bytes], port_fd: int) -> Process:
        try:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.launch_environment(port_fd),
                pass_fds=(*self.inherited_fds, port_fd),
                start_new_session=True,
                preexec_fn=die_with_parent(self.death_signal),
            )
        except OSError as error:
            raise ServiceError(f"cannot start {self.name}: {error}") from None
        assert process.stdin is not None
        process.stdin.write(self.stdin.encode())
        process.stdin.close()
        return process

    def launch_environment(self, port_fd: int) -> dict[str, str]:
        """The environment of a start, with the port of the start before."""
        port = {} if self.port is None else {"PORT": str(self.port)}
        return {**self.environment, **port, "PLUMBLINE_PORT_FD": str(port_fd)}

    def wait_for_port(self, seconds: float = 60.0) -> int:
        """Wait until the child announces its port.

        Raises:
            ServiceError: The child died, or is not ready in time.
        """
        if not self._read_port(seconds):
            # The pipe is closed an instant before the process can be waited for.
            if self.process and self.port is None:
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(1.0)
            if not self.running:
                raise ServiceError(f"{self.exit_message()}: {self.last_log_line()}")
            raise ServiceError(self.not_ready_message(seconds))
        assert self.port is not None
        return self.port

    def _read_port(self, seconds: float) -> bool:
        """Read the announcement, if it arrives in time; whether the port is known."""
        if self._announcement is not None:
            ready, _, _ = select.select([self._announcement], [], [], seconds)
            if ready:
                text = self._announcement.read(16)
                self.port = int(text) if text else self.port
        return self.port is not None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self.process.returncode if self.process else None

    def restart_if_dead(self) -> bool:
        """Restart the process if it has died; return whether it had.

        Raises:
            ServiceError: It exited because of invalid settings, or has crashed too often.
        """
        if self.running:
            return False
        now = time.monotonic()
        self._restarted_at = [at for at in self._restarted_at if now - at < self.crash_loop]
        if self.exit_code == self.fatal_exit_code or len(self._restarted_at) >= self.max_restarts:
            raise ServiceError(f"{self.exit_message()}; its log ends: {self.last_log_line()}")
        self._restarted_at.append(now)
        self.restarts += 1
        self._read_port(0)
        self.start()
        return True

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self.process is not None:
            self.process.terminate()

    def stop(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL if the process is still there after ``grace`` seconds."""
        if self.process is None or not self.running:
            return
        self.process.terminate()
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def not_ready_message(self, seconds: float) -> str:
        return f"{self.name} is not ready after {seconds:.0f} s: {self.last_log_line()}"

    def exit_message(self) -> str:
        tries = f" after {self.restarts} restarts" if self.restarts else ""
        return f"{self.name} ended with exit code {self.exit_code}{tries} ({self.log})"

    def last_log_line(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return lines[-1][:300] if lines else "(empty)"


def wait_until(ready: Callable[[], bool], child: ChildProcess, seconds: float = 60.0) -> None:
    """Poll until a child is ready.

    Raises:
        ServiceError: The child died, or is not ready in time.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if not child.running:
            raise ServiceError(f"{child.exit_message()}: {child.last_log_line()}")
        if time.monotonic() > deadline:
            raise ServiceError(child.not_ready_message(seconds))
        time.sleep(0.02)


class Supervisor:
    """Supervises children in the order of their start."""

    def __init__(self) -> None:
        self.children: list[ChildProcess] = []

    def start(self, child: ChildProcess, spawn: Spawn | None = None) -> ChildProcess:
        """Start a child, as :meth:`ChildProcess.start` does, and supervise it.

        Raises:
            ServiceError: The program cannot be executed.
        """
        child.start(spawn)
        self.children.append(child)
        return child

    async def watch(self, poll: float = 0.2) -> None:
        """Restart children that die, until cancelled; ``poll`` is in seconds.

        Raises:
            ServiceError: A child cannot be kept alive.
        """
        while True:
            for child in self.children:
                child.restart_if_dead()
            await asyncio.sleep(poll)

    def stop(self) -> None:
        """Shut all children down gracefully and in parallel, the first one after the others."""
        running = [child for child in self.children[1:] if child.running]
        for child in running:
            child.terminate()
        began = time.monotonic()
        for child in reversed(running):
            child.stop(max(0.1, began + child.grace - time.monotonic()))
        for child in self.children[:1]:
            child.stop(child.grace)
