"""Standard streams of a case.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import fcntl
import os
import select
import time

from shared.harness.cases.folders import memory_file, write_all

# Bytes of standard error that are kept; of them so many from its beginning, where runtimes other
# than Python's name the error before they list the calls.
MAX_STDERR, HEAD = 4096, 1024
# Input is a file, which many programs map or ask for its size, unless the source has one of the
# first words, which need a pipe, and none of the second, which need a file.
PIPE_WORDS = (
    b"epoll", b"selectors", b"connect_read_pipe", b"add_reader", b"kqueue", b"ISFIFO", b"is_fifo",
    b"stream_descriptor",
)  # fmt: skip
FILE_WORDS = (
    b"st_size", b"mmap", b"stdin.seek", b"stdin.tell", b"seek(stdin", b"tell(stdin", b"seek(0,",
    b"sendfile", b"copy_file_range",
)  # fmt: skip
# Pause in seconds between reads of a program that prints little at a time, and the bytes of a read
# that is not little.
TICK, MUCH = 0.004, 32768
CHUNK, LARGE_PIPE = 65536, 1 << 20
F_SETPIPE_SZ = 1031


def wants_pipe(source: bytes) -> bool:
    """Whether a program expects its input to be a pipe."""
    return any(word in source for word in PIPE_WORDS) and not any(
        word in source for word in FILE_WORDS
    )


def reopen_input(file: int) -> None:
    """Make a file the standard input, from its beginning and only for reading."""
    os.close(0)
    try:
        os.open("/proc/self/fd/%d" % file, os.O_RDONLY)  # it gets the lowest free number
        os.set_inheritable(0, True)
    except OSError:
        os.dup2(file, 0)
        os.lseek(0, 0, os.SEEK_SET)


class Streams:
    """Standard streams of a case: its input, a file or a pipe, and two pipes that it prints to.

    New ones for each case, so that nothing of a case (flags, capacity, attributes, late writers)
    is there in the next one.

    Attributes:
        given: The child's ends, until they are closed.
    """

    def __init__(
        self, folder: str, stdin: bytes, pipe: bool, user: int | None, limit: int, head: int = 0
    ) -> None:
        self.input = Input(folder, stdin, pipe)
        self.out, self.err = Output(limit + 1), Output(MAX_STDERR, head)
        self.limit = limit
        self.given = [self.input.given, self.out.given, self.err.given]
        if user is not None:
            for fd in self.given:
                os.fchown(fd, user, user)  # so that /dev/stdout can be opened anew

    @property
    def full(self) -> bool:
        return len(self.out.data) > self.limit

    def close_given(self) -> None:
        for fd in self.given:
            os.close(fd)

    def wait(self, reply: int, seconds: float) -> bool:
        """Wait for ``reply`` to be readable, and move what is read and printed in the meantime.

        Returns whether it is; False early when the output exceeds its limit. From then on nothing
        is moved.
        """
        if self.full:
            return bool(select.select([reply], [], [], seconds)[0])
        give_up = time.monotonic() + seconds
        pause = TICK  # the few bytes of most programs are read at their end
        while True:
            left = max(0.0, give_up - time.monotonic())
            if select.select([reply], [], [], min(left, pause))[0]:
                return True
            moved = self.move()
            left = give_up - time.monotonic()
            if self.full or left <= 0:
                return False
            if not moved:
                readers = [reply, *self.out.waiting(), *self.err.waiting()]
                if reply in select.select(readers, self.input.waiting(), [], left)[0]:
                    return True
                moved = self.move()
            pause = 0 if moved >= MUCH else TICK

    def move(self) -> int:
        """Move what can be moved without waiting; returns the number of bytes."""
        return self.input.write() + self.out.read(LARGE_PIPE) + self.err.read(LARGE_PIPE)

    def finish(self) -> None:
        """Read what the case left in the pipes; nothing writes to them any more."""
        if not self.full:
            self.out.read(self.limit + CHUNK)
        self.err.read(64 * LARGE_PIPE)
        for stream in (self.input, self.out, self.err):
            stream.close()


class Input:
    """Standard input of a case; ``given`` is the child's end."""

    def __init__(self, folder: str, data: bytes, pipe: bool) -> None:
        self.fd = -1
        self.rest = memoryview(data)
        if not pipe:
            self.given = memory_file(folder, "in")
            write_all(self.given, data)
            return
        self.given, self.fd = os.pipe()
        os.set_blocking(self.fd, False)
        if len(data) > CHUNK:
            enlarge(self.fd)
        self.write()

    def waiting(self) -> list[int]:
        return [self.fd] if self.fd >= 0 else []

    def write(self) -> int:
        """Write what fits into the pipe; returns the number of bytes."""
        if self.fd < 0:
            return 0
        before = len(self.rest)
        try:
            while self.rest:
                self.rest = self.rest[os.write(self.fd, self.rest) :]
        except BlockingIOError:
            return before - len(self.rest)
        except BrokenPipeError:
            pass  # the program closed its input
        self.close()
        return before

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Output:
    """Pipe that a case prints to; ``given`` is the child's end.

    Attributes:
        data: ``most`` bytes: the first ``head`` and the last. Callers that need all output stop
            reading in time.
    """

    def __init__(self, most: int, head: int = 0) -> None:
        self.head = head
        self.fd, self.given = os.pipe()
        os.set_blocking(self.fd, False)
        self.most = most
        self.data = bytearray()
        self.large = False

    def waiting(self) -> list[int]:
        return [self.fd] if self.fd >= 0 else []

    def read(self, size: int) -> int:
        """Read what is there, at most about ``size`` bytes; returns the number of bytes."""
        total = 0
        while self.fd >= 0 and total < size:
            try:
                chunk = os.read(self.fd, CHUNK)
            except BlockingIOError:
                break
            if not chunk:
                self.close()
            total += len(chunk)
            self.data += chunk
            del self.data[self.head : max(self.head, len(self.data) - self.most + self.head)]
        if total >= MUCH and not self.large:
            self.large = True
            enlarge(self.fd)
        return total

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def enlarge(pipe: int) -> None:
    """Let a pipe hold more, so that both sides wait for each other less often."""
    try:
        fcntl.fcntl(pipe, F_SETPIPE_SZ, LARGE_PIPE)
    except (OSError, ValueError):
        pass
