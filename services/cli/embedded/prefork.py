"""Prefork: starts the embedded services as forks of one process that has imported their modules.

This module imports little, because the command starts the server before anything else and imports
its own modules meanwhile.
"""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from services.cli.embedded.supervisor import ChildProcess

MAX_REQUEST = 128 * 1024  # a request is one message of a Unix socket
# In the order in which a run needs them.
SERVICES = ("sandbox", "judge", "aggregator")
# Seconds for importing and forking a service, after which it is executed instead.
_ANSWER_SECONDS = 30.0
_SERVER = "services.cli.embedded.preloaded"
# Variables of this process that every embedded service gets.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH")
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A service to fork, its environment, and the signal that it gets when the command dies."""

    service: str
    environment: dict[str, str]
    death_signal: int

    @classmethod
    def parse(cls, message: bytes) -> Self:
        return cls(**json.loads(message))

    def message(self) -> bytes:
        return json.dumps(asdict(self)).encode()


@dataclass
class ForkedProcess:
    """A child that another process forked for this one, with the interface of a ``Popen``."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit code, or the negative number of a signal.

        Raises:
            TimeoutExpired: It is still running after ``timeout`` seconds.
        """
        if timeout is not None and self.poll() is None:
            watched = os.pidfd_open(self.pid)
            try:
                select.select([watched], [], [], timeout)
            finally:
                os.close(watched)
            if self.poll() is None:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        code = self._reap(0)
        assert code is not None
        return code

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, sign: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, sign)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # reaped by the kernel, because SIGCHLD is ignored
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class Prefork:
    """The command's end of a prefork server."""

    def __init__(self, services: Sequence[str] = SERVICES) -> None:
        """Start the server, which begins to import the services in this order."""
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.settimeout(_ANSWER_SECONDS)
        kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", _SERVER, str(theirs.fileno()), *services],
                stdin=subprocess.DEVNULL,
                # A service that cannot be forked is executed, and then its log has the reason.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=kept | {"PYTHONUNBUFFERED": "1"},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C reaches the command alone
            )
        _become_subreaper(True)

    def fork(
        self, service: str, child: "ChildProcess", log: IO[bytes], port_fd: int
    ) -> ForkedProcess | None:
        """Fork a service as the process of ``child``; None if the server has ended."""
        environment = child.launch_environment(port_fd)
        request = ForkRequest(service, environment, child.death_signal).message()
        try:
            socket.send_fds(self._requests, [request], [log.fileno(), port_fd])
            answer = self._requests.recv(32)
        except OSError:
            self._requests.close()  # a late answer must not be taken for that of another service
            return None
        return ForkedProcess(int(answer)) if answer else None

    def close(self) -> None:
        """End the server; the processes that it forked go on."""
        self._requests.close()
        self._server.kill()  # an interpreter that exits by itself first takes down its modules
        self._server.wait()
        _become_subreaper(False)


_early: list[Prefork] = []


def start_early() -> None:
    """Start a server for :func:`take_prefork`, while the command imports its modules."""
    _early.append(Prefork())


def take_prefork() -> Prefork:
    """The server that was started early, or another one; the caller closes it."""
    return _early.pop() if _early else Prefork()


def _become_subreaper(value: bool) -> None:
    """Let orphaned descendants become children of this process, or no longer."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(value), 0, 0, 0)
