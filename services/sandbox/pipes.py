"""Pipes to and from a running program, served by the event loop so that neither side blocks."""

import asyncio
import os
from collections.abc import Callable

CHUNK = 256 * 1024


class PipeReader:
    """Reads a pipe to its end, keeping at most ``limit`` bytes.

    Attributes:
        data: What came so far.
        ended: Done once the pipe is closed on the other side.
    """

    def __init__(self, fd: int, limit: int, on_data: Callable[[bool], None]) -> None:
        """``on_data`` is told of every arrival, and whether the limit is exceeded."""
        self.data = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._fd = fd
        self._limit = limit
        self._on_data = on_data
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self._read)

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if not self.ended.done():
            self.ended.set_result(None)

    def _read(self) -> None:
        try:
            chunk = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            self.close()
            return
        room = self._limit - len(self.data)
        self.data += chunk[:room]
        self._on_data(len(chunk) > room)


class PipeWriter:
    """Writes ``data`` into a pipe as the other side takes it, then closes it."""

    def __init__(self, fd: int, data: bytes) -> None:
        self._fd = fd
        self._rest = memoryview(data)
        os.set_blocking(fd, False)
        self._write()
        if self._fd >= 0:
            asyncio.get_running_loop().add_writer(fd, self._write)

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _write(self) -> None:
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._fd, self._rest[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            pass  # the program closed its input or ended without reading all of it: its right
        self.close()
