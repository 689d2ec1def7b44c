"""Processes: limit of open files, parent death signal, free port, announcement of the port."""

import ctypes
import os
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from shared.files import write_text

_PR_SET_PDEATHSIG = 1


def raise_file_limit(wanted: int) -> int:
    """Raise the soft limit of open files, often 1,024, to ``wanted`` if the hard one permits it.

    Returns:
        The limit, ``wanted`` at most.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit


def die_with_parent(sign: signal.Signals) -> Callable[[], None]:
    """A ``preexec_fn`` that makes the kernel send ``sign`` to the child when its parent dies.

    The parent is the thread that starts the child; it must live as long as the child should.
    """
    parent = os.getpid()
    set_death_signal = death_signal_setter()
    return lambda: set_death_signal(sign, parent)


def death_signal_setter() -> Callable[[signal.Signals, int], None]:
    """Load the C library before a fork; the returned function is called in the child.

    Its arguments are the signal to get when the parent dies, and the parent's process id.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def set_death_signal(sign: signal.Signals, parent: int) -> None:
        libc.prctl(_PR_SET_PDEATHSIG, sign)
        if os.getppid() != parent:
            os.kill(os.getpid(), sign)

    return set_death_signal


def free_port() -> int:
    """Return a loopback port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def announce_port(port: int) -> None:
    """Write the bound port to the file that ``PLUMBLINE_PORT_FILE`` names."""
    if port_file := os.environ.get("PLUMBLINE_PORT_FILE"):
        write_text(Path(port_file), f"{port}\n")
