"""SIGTERM as an interrupt, so that a command ends in one way, and interrupts that are not lost."""

import logging
import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_AGAIN_SECONDS = 0.01
_SAME_SECONDS = 1


# SIGALRM repeats an interrupt.
_SIGNALS = (signal.SIGTERM, signal.SIGALRM)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt as Ctrl-C does, so that both shut down gracefully.

    A second SIGTERM within a second is the same request: coreutils' ``timeout`` sends two.
    """
    raised_at = -math.inf

    def repeat() -> None:
        nonlocal raised_at
        raised_at = -math.inf
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    def terminate(_number: int, frame: FrameType | None) -> None:
        nonlocal raised_at
        # An exception while logging takes its lock would leave the lock taken for all threads.
        while frame is not None:
            if frame.f_code.co_filename == logging.__file__:
                repeat()
                return
            frame = frame.f_back
        now = time.monotonic()
        if now - raised_at > _SAME_SECONDS:
            raised_at = now
            raise KeyboardInterrupt

    def report(ignored: "UnraisableHookArgs") -> None:
        # Raised in a callback, of which each import has some, it does not reach the command.
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            repeat()
        else:
            sys.__unraisablehook__(ignored)

    before = {number: signal.signal(number, terminate) for number in _SIGNALS}
    sys.unraisablehook, hook = report, sys.unraisablehook
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
