"""Signals that end a command."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from services.cli.imports import INTERRUPTION
from shared.errors import InterruptedRunError, PlumblineError

INTERRUPTED = InterruptedRunError(INTERRUPTION)
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


def error_line(error: PlumblineError) -> str:
    """The line that a command prints on stderr when it ends with an error."""
    return f"plumb: {' '.join(str(error).split())}"
