"""Temporary file of problems as judges read them."""

import os
import tempfile


class RecordFile:
    """Packed records, in a file without a name that ends with the process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="plumbline-reward-")  # noqa: SIM115 - closed below
        self._size = 0

    def add(self, record: bytes) -> tuple[int, int]:
        """Append a record; returns its offset and size. Not thread-safe.

        Raises:
            OSError: The disk is full.
        """
        place = self._size, len(record)
        left = memoryview(record)
        while left:  # a nearly full disk takes a part
            written = os.pwrite(self._file.fileno(), left, self._size)
            self._size += written
            left = left[written:]
        return place

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, offset)

    def close(self) -> None:
        self._file.close()
