"""Runs of a slot's init: the processes of a program, its limits, and how it ended.

It runs in the sandbox, in the slot's init. Standard library only.
"""

from __future__ import annotations

import math
import os
import time

from shared.harness import cases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Ended:
    """The children of the init that have ended: exit codes, peak memory (KiB), times of all."""

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.memory: dict[int, int] = {}
        self.user = self.system = 0.0

    def reap(self) -> bool:
        """Reap all dead children; returns whether there are others."""
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return True
                self.codes[pid] = cases.exit_code(status)
                self.memory[pid] = usage.ru_maxrss
                self.user += usage.ru_utime
                self.system += usage.ru_stime
        except ChildProcessError:
            return False


class Run:
    """A run, whose first process is ``pid``.

    Attributes:
        full: Whether more was printed than may be.
        quiet: Whether its descriptors are waited for, instead of looked at a little later.
    """

    full, quiet = False, True

    def __init__(self, limit: float | None, ended: Ended) -> None:
        self.began = time.monotonic()
        self.limit = math.inf if limit is None else limit
        self.ended = ended
        self.pid = 0

    def readers(self) -> list[int]:
        return []

    def writers(self) -> list[int]:
        return []

    def move(self) -> None:
        """Do what the descriptors are ready for, without waiting."""

    def left(self, now: float) -> float:
        """Return the seconds until the next look at the limits; 0 or less if one is exceeded."""
        return self.began + self.limit - now

    def has_ended(self) -> bool:
        return self.pid in self.ended.codes

    def is_stopped(self) -> bool:
        """Whether an answer has stopped what should stop it."""
        return False

    def close_given(self) -> None:
        """Close what only the processes of the run need, once they are started."""

    def stop(self) -> None:
        """Stop what must not see the others die; all processes are killed afterwards."""

    def close(self) -> None:
        """Close what this process has of the run, whose processes are dead."""

    def result(self, reason: str) -> dict[str, Any]:
        """Return what the server wants to know besides the reason for the end."""
        return {"status": self.ended.codes.get(self.pid) if reason == "ended" else None}


class Cases(Run):
    """The cases of an answer; the process is their supervisor."""

    def is_stopped(self) -> bool:
        return cases.stat_of(self.pid)[:1] == [b"T"]
