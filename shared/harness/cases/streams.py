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
BUFFER = bytearray(CHUNK)


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
        source = memory_file(folder, "in")
        write_all(source, stdin)
        self.feed = Input(source) if pipe else None
        self.source = source if pipe else -1
        self.out, self.err = KeptOutput(limit + 1), KeptOutput(MAX_STDERR, head)
        self.limit = limit
        given = self.feed.given if self.feed else source
        self.given = [given, self.out.given, self.err.given]
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
                writers = self.feed.waiting() if self.feed else []
                if reply in select.select(readers, writers, [], left)[0]:
                    return True
                moved = self.move()
            pause = 0 if moved >= MUCH else TICK

    def move(self) -> int:
        """Move what can be moved without waiting; returns the number of bytes."""
        written = self.feed.write() if self.feed else 0
        return written + self.out.read() + self.err.read()

    def finish(self) -> None:
        """Read what the case left in the pipes; nothing writes to them any more."""
        if not self.full:
            self.out.read(self.limit + CHUNK)
        self.err.read(64 * LARGE_PIPE)
        for stream in (self.out, self.err):
            stream.close()
        if self.feed:
            self.feed.close()
            os.close(self.source)


class Input:
    """Standard input that is a pipe, fed from a file; ``given`` is the program's end."""

    def __init__(self, source: int) -> None:
        self.source, self.sent = source, 0
        self.size = os.fstat(source).st_size
        self.given, self.fd = os.pipe()
        os.set_blocking(self.fd, False)
        if self.size > CHUNK:
            enlarge(self.fd)
        self.write()

    def waiting(self) -> list[int]:
        return [self.fd] if self.fd >= 0 else []

    def write(self) -> int:
        """Write what fits into the pipe; returns the number of bytes."""
        before = self.sent
        try:
            while self.fd >= 0 and self.sent < self.size:
                sent = os.sendfile(self.fd, self.source, self.sent, CHUNK)
                self.sent += sent or self.size  # a file that was cut off has ended
        except BlockingIOError:
            return self.sent - before
        except BrokenPipeError:
            pass  # the program closed its input
        self.close()
        return self.sent - before

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Output:
    """Pipe that a program prints to; ``given`` is its end."""

    def __init__(self) -> None:
        self.fd, self.given = os.pipe()
        os.set_blocking(self.fd, False)
        self.large = False

    def waiting(self) -> list[int]:
        return [self.fd] if self.fd >= 0 else []

    def keep(self, data: memoryview) -> bool:
        """Keep what was read; returns whether more may come."""
        raise NotImplementedError

    def read(self, size: int = LARGE_PIPE) -> int:
        """Read what is there, at most about ``size`` bytes; returns the number of bytes."""
        total, more = 0, True
        while self.fd >= 0 and more and total < size:
            try:
                count = os.readv(self.fd, [BUFFER])
            except BlockingIOError:
                break
            if not count:
                self.close()
            with memoryview(BUFFER) as view:
                more = self.keep(view[:count])
            total += count
        if total >= MUCH and not self.large:
            self.large = True
            enlarge(self.fd)
        return total

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class KeptOutput(Output):
    """Output of a case.

    Attributes:
        data: ``most`` bytes: the first ``head`` and the last. Callers that need all output stop
            reading in time.
    """

    def __init__(self, most: int, head: int = 0) -> None:
        super().__init__()
        self.most, self.head = most, head
        self.data = bytearray()

    def keep(self, data: memoryview) -> bool:
        self.data += data
        del self.data[self.head : max(self.head, len(self.data) - self.most + self.head)]
        return True


def enlarge(pipe: int) -> None:
    """Let a pipe hold more, so that both sides wait for each other less often."""
    try:
        fcntl.fcntl(pipe, F_SETPIPE_SZ, LARGE_PIPE)
    except (OSError, ValueError):
        pass
