"""Supervisor of child processes: readiness, restart after a crash, graceful shutdown.

Each child is in its own session, so that Ctrl-C reaches the parent alone, and the kernel signals it
when the parent dies (PR_SET_PDEATHSIG).
"""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shared.errors import ServiceError
from shared.process_environment import open_directly
from shared.service.processes import die_with_parent

GRACE_SECONDS = 5.0
# A service that runs for weeks may crash more often than one that cannot start.
_CRASH_LOOP_SECONDS = 300.0
_INVALID_SETTINGS = 2  # exit code of a service


@dataclass
class ChildProcess:
    """A child process and its launch settings.

    Attributes:
        log: File that the output is appended to.
        environment: The complete environment.
        stdin: Text written to standard input.
        port_file: File in which a service writes the port that it listens on.
        death_signal: Signal that the kernel sends the child when this process dies.
        grace: Seconds between SIGTERM and SIGKILL.
        ready_timeout: Seconds until a service must be ready.
        max_restarts: Number of restarts within five minutes after which another crash is an error.
        port: The port that the child has written; a restarted child listens on it again.
    """

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    stdin: str = ""
    port_file: Path | None = None
    inherited_fds: Sequence[int] = ()
    death_signal: signal.Signals = signal.SIGTERM
    grace: float = GRACE_SECONDS
    ready_timeout: float = 60.0
    max_restarts: int = 10
    restarts: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    port: int | None = None
    _restarted_at: list[float] = field(default_factory=list, repr=False)

    def start(self) -> None:
        """Start the process, unless it was started and only waits for its standard input.

        Raises:
            ServiceError: The program cannot be executed.
        """
        if self.port_file is not None:
            self.port_file.unlink(missing_ok=True)
        if not self.running:
            try:
                with self.log.open("ab") as log:
                    self.process = subprocess.Popen(
                        self.command,
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env=self.launch_environment(),
                        pass_fds=self.inherited_fds,
                        start_new_session=True,
                        preexec_fn=die_with_parent(self.death_signal),
                    )
            except OSError as error:
                raise ServiceError(f"cannot start {self.name}: {error}") from None
        assert self.process is not None and self.process.stdin is not None
        # A process that has died is noticed by the supervisor.
        with suppress(BrokenPipeError), self.process.stdin as stdin:
            stdin.write(self.stdin.encode())

    def launch_environment(self) -> dict[str, str]:
        """The environment of a start, with the port of the start before."""
        environment = dict(self.environment)
        if self.port_file is not None:
            environment["PLUMBLINE_PORT_FILE"] = str(self.port_file)
        if self.port is not None:
            environment["PORT"] = str(self.port)
        return environment

    def wait_for_url(self) -> str:
        """Wait until a service has written its port; returns its base URL."""
        assert self.port_file is not None
        wait_until(self.port_file.exists, self)
        self.port = int(self.port_file.read_text())
        return f"http://127.0.0.1:{self.port}"

    def wait_for_report(self, url: str) -> bytes:
        """Wait until /readyz succeeds; returns the service's report, which is JSON."""
        report = bytearray()

        def ready() -> bool:
            try:
                with open_directly(f"{url}/readyz", timeout=5) as response:
                    report[:] = response.read(2**20)
            except (OSError, ValueError):
                return False
            return True

        wait_until(ready, self, self.ready_timeout)
        return bytes(report)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self.process.returncode if self.process else None

    def restart_if_dead(self) -> None:
        """Restart the process if it has died.

        Raises:
            ServiceError: It exited because of invalid settings, or has crashed too often.
        """
        if self.running:
            return
        now = time.monotonic()
        self._restarted_at = [at for at in self._restarted_at if now - at < _CRASH_LOOP_SECONDS]
        if self.exit_code == _INVALID_SETTINGS or len(self._restarted_at) >= self.max_restarts:
            raise ServiceError(f"{self.exit_message()}; its log ends: {self.last_log_line()}")
        self._restarted_at.append(now)
        self.restarts += 1
        self.start()

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
            raise ServiceError(
                f"{child.name} is not ready after {seconds:.0f} s: {child.last_log_line()}"
            )
        time.sleep(0.02)


class Supervisor:
    """Supervises children in the order of their start."""

    def __init__(self) -> None:
        self.children: list[ChildProcess] = []

    def start(self, child: ChildProcess) -> ChildProcess:
        """Start a child and supervise it; a ServiceError if it cannot be executed."""
        child.start()
        self.children.append(child)
        return child

    def restart_dead(self) -> None:
        """Restart children that have died; a ServiceError if one cannot be kept alive."""
        for child in self.children:
            child.restart_if_dead()

    def stop(self) -> None:
        """Shut all children down gracefully and in parallel, the first one after the others."""
        for child in self.children[1:]:
            if child.running and child.process is not None:
                child.process.terminate()
        began = time.monotonic()
        for child in reversed(self.children[1:]):
            child.stop(max(0.1, began + child.grace - time.monotonic()))
        for child in self.children[:1]:
            child.stop(child.grace)
