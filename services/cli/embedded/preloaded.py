"""Prefork server: imports the embedded services' modules once, and forks a process for each.

Four interpreters that import the same libraries would take longer to start than a short run takes
to judge. A request arrives over a Unix socket with two file descriptors, for the output and for
the announcement of the port; the answer is the process id. The new process becomes a child of the
command (which is the "child subreaper"), not of this server, so that the command supervises it
like any other child.
"""

import ctypes
import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from services.cli.embedded.prefork import MAX_REQUEST, ForkRequest
from shared.service.processes import death_signal_setter

_ARGUMENTS_BEGIN, _ARGUMENTS_END = 47, 48  # fields of /proc/PID/stat, counted from 0


class _Launch(NamedTuple):
    request: ForkRequest
    output: int
    port_fd: int


def main(arguments: Sequence[str]) -> int:
    """Serve requests until the command closes its end of the socket.

    The arguments are the file descriptor of the socket, and the services to import in this order.
    In a forked process this function returns the service's exit code.
    """
    server = PreforkServer(socket.socket(fileno=int(arguments[0])), os.getppid())
    # The library behind numpy starts threads when it is imported, and the services need none.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    gc.disable()  # collections during imports find nothing to free
    launch = server.preload(arguments[1:]) or server.serve()
    if launch is None:
        return 0
    gc.enable()
    return _run(launch)


class PreforkServer:
    """Imports and forks; has one thread and no event loop, because a fork copies neither.

    Both methods return a launch in a new process, and None in the server.
    """

    def __init__(self, requests: socket.socket, parent: int) -> None:
        self._requests = requests
        self._parent = parent
        self._set_death_signal = death_signal_setter()

    def preload(self, services: Sequence[str]) -> _Launch | None:
        """Import services; requests that arrive meanwhile are served between two imports."""
        for service in services:
            while select.select([self._requests], [], [], 0)[0]:
                if (launch := self._receive()) is not None or self._closed:
                    return launch
            import_module(_main_module(service))
        return None

    def serve(self) -> _Launch | None:
        """Serve requests until the socket is closed."""
        while not self._closed:
            if launch := self._receive():
                return launch
        return None

    @property
    def _closed(self) -> bool:
        return self._requests.fileno() < 0

    def _receive(self) -> _Launch | None:
        message, descriptors, _, _ = socket.recv_fds(self._requests, MAX_REQUEST, 2)
        if not message:
            self._requests.close()
            return None
        launch = _Launch(ForkRequest.parse(message), *descriptors)
        import_module(_main_module(launch.request.service))
        if self._fork(launch):
            return launch
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def _fork(self, launch: _Launch) -> bool:
        """Fork twice, so that the second process is orphaned and becomes the command's child."""
        # Frozen objects are never traversed again, which also keeps the pages that the processes
        # share from being copied.
        gc.freeze()
        if between := os.fork():
            if os.waitpid(between, 0)[1] != 0:
                self._requests.close()  # so that the command executes its services
            return False
        between = os.getpid()
        try:
            if os.fork():
                os._exit(0)
        except OSError:
            os._exit(1)
        self._wait_for_parent(between)
        self._set_death_signal(signal.Signals(launch.request.death_signal), self._parent)
        with self._requests:
            self._requests.send(str(os.getpid()).encode())
        return True

    def _wait_for_parent(self, between: int) -> None:
        """Wait until the process in between has ended, which a process cannot be notified of."""
        while os.getppid() == between:
            time.sleep(0.0002)
        if os.getppid() != self._parent:
            os._exit(1)  # the command has died


def _run(launch: _Launch) -> int:
    """Take on the environment of the new process, and run its service."""
    service = launch.request.service
    os.setsid()
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for standard in (1, 2):
        os.dup2(launch.output, standard)
    os.close(launch.output)
    os.environ.clear()
    os.environ.update(launch.request.environment, PLUMBLINE_PORT_FD=str(launch.port_fd))
    if fsspec_config := sys.modules.get("fsspec.config"):
        # fsspec has read its variables when it was imported, in another environment.
        fsspec_config.set_conf_env(fsspec_config.conf)
    sys.argv[:] = [f"services.{service}"]
    _set_title([sys.executable, "-m", f"services.{service}"])
    return int(import_module(_main_module(service)).main())


def _main_module(service: str) -> str:
    return f"services.{service}.__main__"


def _set_title(command: Sequence[str]) -> None:
    """Overwrite the arguments in this process's memory, which `ps` shows.

    They fit, because the server's own command line is longer.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    # The first two fields, the process id and the name, are before the parenthesis.
    begin, end = (int(fields[number - 2]) for number in (_ARGUMENTS_BEGIN, _ARGUMENTS_END))
    title = b"".join(part.encode() + b"\0" for part in command)
    if 0 < begin < end and len(title) <= end - begin:
        ctypes.memmove(begin, title.ljust(end - begin, b"\0"), end - begin)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # an interpreter that exits by itself first takes down its modules
