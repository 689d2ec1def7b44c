"""SIGTERM as an interrupt, so that a command ends in one way."""

import logging
import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN_SECONDS = 0.01
_SAME_SECONDS = 1


class _Terminated(KeyboardInterrupt):
    """SIGTERM arrived.

    After a plain ``KeyboardInterrupt`` that passed through ``exec`` of a string, as the definition
    of a dataclass has one, Python ends by SIGINT whatever exit code was asked for.
    """


# SIGALRM repeats a SIGTERM.
_SIGNALS = (signal.SIGTERM, signal.SIGALRM)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt as Ctrl-C does, so that both shut down gracefully.

    A second SIGTERM within a second is the same request: coreutils' ``timeout`` sends two.
    """
    raised_at = -math.inf

    def terminate(_number: int, frame: FrameType | None) -> None:
        nonlocal raised_at
        # An exception while logging takes its lock would leave the lock taken for all threads.
        while frame is not None:
            if frame.f_code.co_filename == logging.__file__:
                signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
                return
            frame = frame.f_back
        now = time.monotonic()
        if now - raised_at > _SAME_SECONDS:
            raised_at = now
            raise _Terminated

    before = {number: signal.signal(number, terminate) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
