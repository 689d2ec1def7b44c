"""SIGTERM as an interrupt, so that a command ends in one way."""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SAME_SECONDS = 1


class _Terminated(KeyboardInterrupt):
    """SIGTERM arrived.

    After a plain ``KeyboardInterrupt`` that passed through ``exec`` of a string, as the definition
    of a dataclass has one, Python ends by SIGINT whatever exit code was asked for.
    """


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt as Ctrl-C does, so that both shut down gracefully.

    A second SIGTERM within a second is the same request: coreutils' ``timeout`` sends two.
    """
    raised_at = -math.inf

    def terminate(_number: int, _frame: FrameType | None) -> None:
        nonlocal raised_at
        now = time.monotonic()
        if now - raised_at > _SAME_SECONDS:
            raised_at = now
            raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
