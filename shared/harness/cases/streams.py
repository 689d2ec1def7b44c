"""Standard streams of a case.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import fcntl
import os

from shared.harness.cases.files import write_all

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
    """Standard streams of a program: its input, a file or a pipe, and two pipes that it prints to.

    New ones for each, so that nothing of a program (flags, capacity, attributes, late writers) is
    there in the next one. What it prints goes into files, for this process's memory is inherited.
    After a move that found nothing, or so much that more will follow, it is ``quiet``.

    Attributes:
        ends: The program's ends, until they are closed.
    """

    def __init__(self, source: int, pipe: bool, out: FiledOutput, err: Output) -> None:
        self.feed = Input(source) if pipe else None
        self.outputs = out, err
        self.ends = [self.feed.end if self.feed else source, out.end, err.end]
        self.quiet = False  # a short program is read at its end

    @property
    def full(self) -> bool:
        """Whether more was printed than may be."""
        return any(output.full for output in self.outputs)

    def close_ends(self) -> None:
        for fd in self.ends:
            os.close(fd)

    def waiting(self) -> tuple[list[int], list[int]]:
        """Return the descriptors to wait for until they are readable, and writable."""
        readers = [output.fd for output in self.outputs if output.fd >= 0]
        return readers, [self.feed.fd] if self.feed and self.feed.fd >= 0 else []

    def move(self) -> None:
        """Move what can be moved without waiting."""
        moved = self.feed.write() if self.feed else 0
        moved += sum(output.read() for output in self.outputs)
        self.quiet = not 0 < moved < MUCH

    def finish(self) -> None:
        """Read what the program left in the pipes; nothing writes to them any more."""
        for output in self.outputs:
            while output.read():
                pass
            output.close()
        if self.feed:
            self.feed.close()
        most = max(output.longest for output in self.outputs)
        BUFFER[:most] = bytes(most)


class Input:
    """Standard input that is a pipe, fed from a file that it closes.

    ``end`` is that of the program.
    """

    def __init__(self, source: int) -> None:
        self.source, self.sent = source, 0
        self.size = os.fstat(source).st_size
        self.end, self.fd = os.pipe()
        os.set_blocking(self.fd, False)
        if self.size > CHUNK:
            enlarge(self.fd)
        self.write()

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
            os.close(self.source)
            self.fd = -1


class Output:
    """Pipe that a program prints to; ``end`` is that of the program.

    Attributes:
        full: Whether more was printed than may be.
        longest: Most bytes of a read.
    """

    def __init__(self) -> None:
        self.fd, self.end = os.pipe()
        os.set_blocking(self.fd, False)
        self.large = self.full = False
        self.longest = 0

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
            self.longest = max(self.longest, count)
        if total >= MUCH and not self.large:
            self.large = True
            enlarge(self.fd)
        return total

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class FiledOutput(Output):
    """Output in a file: at most ``limit`` bytes, beyond which it is full."""

    def __init__(self, file: int, limit: int) -> None:
        super().__init__()
        self.file = file
        self.room = limit

    def keep(self, data: memoryview) -> bool:
        write_all(self.file, data[: max(0, self.room)])
        self.room -= len(data)
        self.full = self.room < 0
        return not self.full


class EndOfOutput(Output):
    """The first ``head`` and the last bytes of an output, ``MAX_STDERR`` together."""

    def __init__(self, head: int) -> None:
        super().__init__()
        self.head = head
        self.data = bytearray()

    def keep(self, data: memoryview) -> bool:
        self.data += data
        del self.data[self.head : max(self.head, len(self.data) - MAX_STDERR + self.head)]
        return True


def enlarge(pipe: int) -> None:
    """Let a pipe hold more, so that both sides wait for each other less often."""
    try:
        fcntl.fcntl(pipe, F_SETPIPE_SZ, LARGE_PIPE)
    except (OSError, ValueError):
        pass
