"""What child processes need: not to outlive their parent, and ports to listen on."""

import ctypes
import os
import signal
import socket
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with_parent(sign: signal.Signals) -> Callable[[], None]:
    """A ``preexec_fn`` after which the kernel sends the child ``sign`` when its parent dies.

    The parent is the thread that starts the child: it has to live as long as the child is to.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def set_death_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, sign)
        if os.getppid() != parent:
            os.kill(os.getpid(), sign)

    return set_death_signal


def free_port() -> int:
    """A port of loopback on which nobody listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
