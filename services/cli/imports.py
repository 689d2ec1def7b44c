"""Signals while modules are imported.

This module itself imports next to nothing, because the command imports it first.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

INTERRUPTION = "interrupted; repeat the command"
_EXIT_CODE = 130  # that of InterruptedRunError
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible_imports() -> Iterator[None]:
    """Let SIGINT and SIGTERM end this process with a line on stderr, without an exception.

    Many imports get lost in an exception, or make another of it. A signal that is ignored stays so,
    and only the main thread can change what signals do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {sign: signal.getsignal(sign) for sign in _SIGNALS}
    for sign, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(sign, _end)
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _end(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):
        os.write(sys.stderr.fileno(), f"plumb: {INTERRUPTION}\n".encode())
    os._exit(_EXIT_CODE)
