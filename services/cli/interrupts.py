"""SIGTERM as an interrupt, so that a command ends in one way."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class _Terminated(KeyboardInterrupt):
    """SIGTERM arrived.

    After a plain ``KeyboardInterrupt`` that passed through ``exec`` of a string, as the definition
    of a dataclass has one, Python ends by SIGINT whatever exit code was asked for.
    """


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt as Ctrl-C does, so that both shut down gracefully."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated
