"""Specification of a call, and the records of its results.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import os

from shared.harness.cases.folders import write_all

RESULTS, CALL = "results", "call"
# The languages whose programs are run by the harness's own interpreter; the second one is that of
# function tests.
PYTHON, FUNCTIONS = "python", "functions"
# Limits in the order in which they are sent, as in ``wire.CaseLimits``.
TIMES = ("cpu", "wall", "compile", "budget")
NUMBERS = ("memory", "output", "processes", "timeouts", "results")


class CallSpec:
    """Specification of a call: language, limits, sizes of the answer, its prelude, the inputs."""

    def __init__(self, line: bytes) -> None:
        self.language, *words = line.decode().split()
        self.times = dict(zip(TIMES, map(float, words)))
        sizes = list(map(int, words[len(TIMES) :]))
        self.numbers = dict(zip(NUMBERS, sizes))
        self.answer, self.prelude, *self.inputs = sizes[len(NUMBERS) :]


class Records:
    """Records, written to a file descriptor.

    Attributes:
        size: Bytes so far.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = 0

    def add(
        self, kind: object, *words: object, out: int = 0, size: int = 0, err: bytes = b""
    ) -> None:
        """Add a record; ``out`` is the descriptor of a file with ``size`` bytes of output."""
        head = b"%s\n" % " ".join(map(str, (kind, *words, size, len(err)))).encode()
        write_all(self.fd, head)
        copy(out, self.fd, 0, size)
        write_all(self.fd, err + b"\n")
        self.size += len(head) + size + len(err) + 1


def copy(source: int, target: int, start: int, size: int) -> None:
    """Copy a part of a file by the kernel: it does not get into this process's memory."""
    end = start + size
    while start < end:
        start += os.sendfile(target, source, start, end - start)
