"""The standard library's ``_multiprocessing`` for a slot without ``/dev/shm``.

The C library puts named semaphores there. These are named pipes in the folder for temporary files
instead, with a byte for each unit of the value, and have the interface that
``multiprocessing.synchronize`` uses. Standard library and Python 3.8 only.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import tempfile
import termios
import threading
import time

RECURSIVE_MUTEX, SEMAPHORE = range(2)
flags: dict[str, int] = {"HAVE_SEM_OPEN": 1, "HAVE_SEM_TIMEDWAIT": 1}


def _path(name: str) -> str:
    return os.path.join(tempfile.gettempdir(), ".sem-" + name.strip("/"))


def sem_unlink(name: str) -> None:
    os.unlink(_path(name))


class SemLock:
    """A semaphore or recursive lock between processes.

    One that begins with the largest value, as that of an unbounded queue, is always free.
    """

    SEM_VALUE_MAX = 2**31 - 1
    name: str | None

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink: bool) -> None:
        if kind not in (RECURSIVE_MUTEX, SEMAPHORE):
            raise ValueError("unrecognized kind")
        os.mkfifo(_path(name), 0o600)
        self._open(value == self.SEM_VALUE_MAX, kind, maxvalue, name)
        if not self.handle:
            os.write(self._pipe, bytes(value))
        if unlink:
            sem_unlink(name)
            self.name = None  # who sees a name removes it at the end

    @classmethod
    def _rebuild(cls, handle: int, kind: int, maxvalue: int, name: str) -> SemLock:
        lock = cls.__new__(cls)
        lock._open(bool(handle), kind, maxvalue, name)
        return lock

    def _open(self, free: bool, kind: int, maxvalue: int, name: str) -> None:
        self._pipe = os.open(_path(name), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.handle = int(free)
        self.kind, self.maxvalue, self.name = kind, maxvalue, name
        self._held = 0
        self._holder = 0

    def __del__(self) -> None:
        os.close(self._pipe)

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        if self.kind == RECURSIVE_MUTEX and self._is_mine():
            self._held += 1
            return True
        if not self.handle and not self._wait(block, timeout):
            return False
        self._held += 1
        self._holder = threading.get_ident()
        return True

    def release(self) -> None:
        if self.kind == RECURSIVE_MUTEX:
            if not self._is_mine():
                raise AssertionError("attempt to release recursive lock not owned by thread")
            if self._held > 1:
                self._held -= 1
                return
        elif not self.handle and self._get_value() >= self.maxvalue:
            raise ValueError("semaphore or lock released too many times")
        if not self.handle:
            os.write(self._pipe, b"\0")
        self._held -= 1

    def _wait(self, block: bool, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                os.read(self._pipe, 1)
                return True
            except BlockingIOError:
                left = None if deadline is None else deadline - time.monotonic()
                if not block or (left is not None and left <= 0):
                    return False
                select.select([self._pipe], [], [], left)

    def _count(self) -> int:
        return self._held

    def _is_mine(self) -> bool:
        return self._held > 0 and self._holder == threading.get_ident()

    def _get_value(self) -> int:
        if self.handle:
            return self.SEM_VALUE_MAX
        size = fcntl.ioctl(self._pipe, termios.FIONREAD, bytes(4))
        return int.from_bytes(size, sys.byteorder)

    def _is_zero(self) -> bool:
        return self._get_value() == 0

    def _after_fork(self) -> None:
        self._held = 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
