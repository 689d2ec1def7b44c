"""SIGTERM as an interrupt, so that a command ends in one way."""

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN_SECONDS = 0.01


class _Terminated(KeyboardInterrupt):
    """SIGTERM arrived.

    After a plain ``KeyboardInterrupt`` that passed through ``exec`` of a string, as the definition
    of a dataclass has one, Python ends by SIGINT whatever exit code was asked for.
    """


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt as Ctrl-C does, so that both shut down gracefully."""
    before = {number: signal.signal(number, _terminate) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# SIGALRM repeats a SIGTERM.
_SIGNALS = (signal.SIGTERM, signal.SIGALRM)


def _terminate(number: int, frame: FrameType | None) -> None:
    # An exception while logging takes its lock would leave the lock taken for all threads.
    while frame is not None:
        if frame.f_code.co_filename == logging.__file__:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
            return
        frame = frame.f_back
    raise _Terminated
