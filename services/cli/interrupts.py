"""Signals that end a command."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from shared.errors import InterruptedRunError, PlumblineError

INTERRUPTED = InterruptedRunError("interrupted; repeat the command")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds until an interrupt that was lost comes again.
_AGAIN = 0.01


class _Terminated(KeyboardInterrupt):
    """SIGTERM arrived.

    After a ``KeyboardInterrupt`` itself that passed through ``exec`` of a string, as the definition
    of a dataclass has one, Python ends by SIGINT whatever exit code was asked for.
    """


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt as Ctrl-C does, so that both shut down gracefully.

    An interrupt that arrives where Python ignores exceptions, as in a finalizer or the callback of
    a weak reference, comes again.
    """
    before, hook = signal.signal(signal.SIGTERM, _terminate), sys.unraisablehook

    def repeat(lost: "sys.UnraisableHookArgs") -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt):
            signal.signal(signal.SIGALRM, interrupt_again)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        else:
            hook(lost)

    def interrupt_again(number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code is repeat.__code__:  # it would be lost there, too
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        else:
            raise _Terminated

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = hook
        if signal.getsignal(signal.SIGALRM) is interrupt_again:
            signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated


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
        os.write(sys.stderr.fileno(), f"{error_line(INTERRUPTED)}\n".encode())
    os._exit(INTERRUPTED.exit_code)


def error_line(error: PlumblineError) -> str:
    """The line that a command prints on stderr when it ends with an error."""
    return f"plumb: {' '.join(str(error).split())}"
