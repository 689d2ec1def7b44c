"""Child processes and their ports: parent death signal, free port, port file."""

import ctypes
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from shared.files import write_text

_PR_SET_PDEATHSIG = 1


def die_with_parent(sign: signal.Signals) -> Callable[[], None]:
    """A ``preexec_fn`` that makes the kernel send ``sign`` to the child when its parent dies.

    The parent is the thread that starts the child; it must live as long as the child should.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def set_death_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, sign)
        if os.getppid() != parent:
            os.kill(os.getpid(), sign)

    return set_death_signal


def free_port() -> int:
    """Return a loopback port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_port_file(port: int) -> None:
    """Write the bound port to the file in ``PLUMBLINE_PORT_FILE``, if set, for a parent process."""
    if port_file := os.environ.get("PLUMBLINE_PORT_FILE"):
        write_text(Path(port_file), f"{port}\n")
