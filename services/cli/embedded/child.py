"""A child process that does not outlive its parent, and is started again when it dies."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shared.errors import ServiceError
from shared.service.processes import die_with_parent

_RESTARTS = 10
GRACE = 5.0


@dataclass
class Child:
    """One process of the stack.

    Args:
        name: What messages call it.
        command: Its command line.
        log: File that its output is appended to.
        environment: Its whole environment.
        stdin: Text that it gets on standard input.
        keep: File descriptors that it inherits.
        death_signal: What the kernel sends it when this process dies.
        grace: Seconds that its end may take.
        refused: Exit code that means its settings are wrong: no use in starting it again.
    """

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    stdin: str = ""
    keep: Sequence[int] = ()
    death_signal: signal.Signals = signal.SIGTERM
    grace: float = GRACE
    refused: int = 2
    restarts: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start the process.

        Raises:
            ServiceError: The program cannot be executed.
        """
        with self.log.open("ab") as log:
            try:
                self.process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(self.environment),
                    pass_fds=tuple(self.keep),
                    start_new_session=True,  # Ctrl-C is for the parent alone, which ends the rest
                    # Killed, this process would otherwise leave the whole stack behind.
                    preexec_fn=die_with_parent(self.death_signal),
                )
            except OSError as error:
                raise ServiceError(f"cannot start {self.name}: {error}") from None
        assert self.process.stdin is not None
        self.process.stdin.write(self.stdin.encode())
        self.process.stdin.close()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def restart_if_dead(self) -> bool:
        """Start the process again where it has died. Returns whether that was so.

        Raises:
            ServiceError: It refuses its settings, or dies again and again.
        """
        if self.running:
            return False
        code = self.process.returncode if self.process else None
        if code == self.refused or self.restarts >= _RESTARTS:
            raise ServiceError(f"{self.name} {self.end(code)}; its log ends: {self.last_words()}")
        self.restarts += 1
        self.start()
        return True

    def stop(self, grace: float) -> None:
        """Ask the process to end, and kill it after ``grace`` seconds."""
        if self.process is None or not self.running:
            return
        self.process.terminate()
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def end(self, code: int | None) -> str:
        return f"ended with exit code {code} after {self.restarts} restarts ({self.log})"

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return lines[-1][:300] if lines else "(empty)"


def wait_until(ready: Callable[[], bool], child: Child, seconds: float = 60.0) -> None:
    """Wait for a child to be ready.

    Raises:
        ServiceError: It died, or is not ready in time.
    """
    give_up = time.monotonic() + seconds
    while not ready():
        if not child.running:
            code = child.process.returncode if child.process else None
            raise ServiceError(f"{child.name} {child.end(code)}: {child.last_words()}")
        if time.monotonic() > give_up:
            raise ServiceError(
                f"{child.name} is not ready after {seconds:.0f} s: {child.last_words()}"
            )
        time.sleep(0.02)
