"""Lines of a run's files with their places, and reading them again by place.

Local files are sought in, remote ones are asked for ranges. A gzip file has no places: it is read
from its begin.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import fsspec

from shared.errors import reading
from shared.json_lines import numbered_lines

LONGEST = 64 * 2**20
"""Bytes of a line; a longer one is reported and skipped."""
# Bytes between two lines up to which a remote file's lines are fetched as one range.
_AT_ONCE = 200


class Place(NamedTuple):
    """Offset and length of a line in bytes, with its newline."""

    start: int
    size: int


class Line(NamedTuple):
    """A line of a file; ``number`` counts from 1. ``text`` is None if it is longer than allowed."""

    number: int
    place: Place
    text: bytes | None


@dataclass(frozen=True)
class RunFiles:
    """The files in a run's folder, any fsspec URL."""

    url: str

    def path(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{name}"

    def exists(self, name: str) -> bool:
        fs, path = fsspec.core.url_to_fs(self.path(name))
        return bool(fs.exists(path))

    def lines(self, name: str) -> Iterator[Line]:
        """Yield the lines that are not blank; memory holds one of them.

        Raises:
            DataError: While iterating: the file cannot be read.
        """
        path = self.path(name)
        with reading(path), fsspec.open(path, "rb") as raw, io.BufferedReader(raw) as file:
            yield from _lines(file)

    def unpacked_lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a gzip file; of one that is too long its parts.

        Raises:
            DataError: While iterating: the file cannot be read, or is damaged.
        """
        path = self.path(name)
        with reading(path), fsspec.open(path, "rb", compression="gzip") as file:
            whole = iter(lambda: file.readline(LONGEST), b"")
            for _, line in numbered_lines(path, whole):
                yield line

    def read(self, name: str, places: Sequence[Place]) -> Iterator[bytes]:
        """Yield the lines at ``places``; one is shorter if the file has ended.

        Raises:
            FileNotFoundError: The file is gone.
            DataError: While iterating: the file cannot be read.
        """
        fs, path = fsspec.core.url_to_fs(self.path(name))
        if not fs.exists(path):
            raise FileNotFoundError(path)
        with reading(self.path(name)):
            if _is_local(fs):
                with fs.open(path, "rb") as file:
                    for start, size in places:
                        file.seek(start)
                        yield file.read(size)
                return
            for first in range(0, len(places), _AT_ONCE):
                chunk = places[first : first + _AT_ONCE]
                ends = [start + size for start, size in chunk]
                starts = [start for start, _ in chunk]
                yield from map(_cut, fs.cat_ranges([path] * len(chunk), starts, ends), chunk)


def _lines(file: BinaryIO) -> Iterator[Line]:
    number = start = 0
    while text := file.readline(LONGEST):
        number += 1
        size = len(text)
        whole: bytes | None = text
        while size >= LONGEST and not text.endswith(b"\n") and (text := file.readline(LONGEST)):
            size += len(text)
            whole = None
        if whole is None or whole.strip():
            yield Line(number, Place(start, size), whole)
        start += size


def _cut(found: bytes, place: Place) -> bytes:
    """A server that knows no ranges answers with the whole file."""
    return found if len(found) <= place.size else found[place.start : place.start + place.size]


def _is_local(fs: fsspec.AbstractFileSystem) -> bool:
    protocol = fs.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else tuple(protocol))
