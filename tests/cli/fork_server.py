"""Run ``plumb`` as a fork of one process that has imported its commands.

A command starts in milliseconds instead of a second of imports. It is still a process with its own
folder, environment, output and exit code.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO

from services.cli.commands import COMMANDS, DATA_COMMANDS, LazyCommand

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = str(ROOT / "services" / "cli" / "__main__.py")
# Beginnings of variables that Python reads at its start, or a module at its import.
READ_AT_THE_START = ("HF_", "HOME", "LANG", "LC_", "PYTHON", "SANDBOX_FUSION_", "XDG_")
_MAX_REQUEST = 128 * 1024
# Modules that commands import while they work.
_LATER = ("services.runner.client", "services.judge.worker", "services.aggregator.__main__")


class ForkServer:
    """The client's side: starts the server and sends it commands.

    A command with a variable of ``READ_AT_THE_START`` is no fork: it must be executed.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli.fork_server", str(theirs.fileno())],
                cwd=ROOT,
                # One thread: a fork copies no others.
                env={**kept, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def run(
        self, arguments: list[str], folder: Path, environment: dict[str, str], seconds: float
    ) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of a command."""
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            code = self._wait(arguments, folder, environment, [stdout, stderr], seconds)
            return code, _text(stdout), _text(stderr)

    def _wait(
        self,
        arguments: list[str],
        folder: Path,
        environment: dict[str, str],
        outputs: list[IO[bytes]],
        seconds: float,
    ) -> int:
        request = json.dumps([arguments, str(folder), environment]).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                descriptors = [theirs.fileno(), *(file.fileno() for file in outputs)]
                socket.send_fds(self._socket, [request], descriptors)
            process = int(ours.recv(64))
            ours.settimeout(seconds)
            try:
                return int(ours.recv(64))
            except TimeoutError:
                os.kill(process, signal.SIGKILL)
                raise

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


_servers: dict[int, ForkServer] = {}


def fork_server() -> ForkServer:
    """The server of this process, started when it is first needed."""
    process = os.getpid()
    if process not in _servers:
        _servers[process] = ForkServer()
        atexit.register(_servers[process].close)
    return _servers[process]


# The server


def _serve(control: socket.socket) -> None:
    """Fork a command for each request, until the other end is closed."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        readable, _, _ = select.select([control, *running], [], [])
        for waiting in readable:
            if waiting is control:
                request, descriptors, _, _ = socket.recv_fds(control, _MAX_REQUEST, 3)
                if not request:
                    return
                command = json.loads(request)
                if command[0][:1] == ["data"]:
                    _import(DATA_COMMANDS)
                process = os.fork()
                if not process:
                    control.close()
                    _become_command(command, descriptors)
                    return
                for descriptor in descriptors[1:]:
                    os.close(descriptor)
                client = socket.socket(fileno=descriptors[0])
                client.send(str(process).encode())
                running[os.pidfd_open(process)] = (process, client)
            else:
                process, client = running.pop(waiting)
                os.close(waiting)
                _, status = os.waitpid(process, 0)
                # The client of a command that took too long has gone.
                with client, suppress(BrokenPipeError):
                    client.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become_command(request: list, descriptors: list[int]) -> None:
    """Continue as the command of a request, at the end of the server's program."""
    arguments, folder, environment = request
    os.close(descriptors[0])
    for number, descriptor in enumerate(descriptors[1:], 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [PROGRAM, *arguments]
    sys.path[0] = folder
    sys.modules["__main__"].__package__ = "services.cli"
    from services.cli.__main__ import main

    main()


def _import(commands: Mapping[str, LazyCommand]) -> None:
    for command in commands.values():
        command.load()


if __name__ == "__main__":
    _import(COMMANDS)
    for name in _LATER:
        import_module(name)
    with socket.socket(fileno=int(sys.argv[1])) as control:
        _serve(control)
