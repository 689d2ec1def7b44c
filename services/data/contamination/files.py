"""Corpus files, split into parts for the worker processes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import BinaryIO, Literal, cast

import fsspec
import pyarrow.parquet as pq

from shared.errors import DataError, data_error, reading

Compression = Literal["gzip", "zstd", "bz2"]
_COMPRESSIONS: Mapping[str, Compression] = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}


@dataclass(frozen=True, slots=True)
class BufferSizes:
    """Sizes that bound memory; results do not depend on them.

    Attributes:
        part: Bytes of a file per part.
        line: Bytes of the longest JSONL line; a line is held four times, and an emoji makes each of
            its characters 4 bytes.
        passage: Characters of a passage of plain text.
        overlap: Characters that neighboring passages share; a long problem with its solution should
            fit completely into one of them.
        batch: Bytes of documents that are searched together; larger batches do not fit into the
            processor's cache and are slower.
        window: Bytes that are searched at once; a typical batch fits into one window.
    """

    part: int = 1 << 26
    line: int = 1 << 23
    passage: int = 1 << 19
    overlap: int = 1 << 16
    batch: int = 1 << 18
    window: int = 1 << 19


DEFAULT_SIZES = BufferSizes()


class Format(StrEnum):
    JSONL = "jsonl"
    PARQUET = "parquet"
    TEXT = "text"


_FORMATS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), Format.JSONL),
    **dict.fromkeys((".parquet", ".pq"), Format.PARQUET),
    **dict.fromkeys((".txt", ".text", ".md", ".rst", ".py", ".tex", ".html"), Format.TEXT),
}


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a file for one process.

    For JSONL, ``start`` and ``end`` are byte offsets: lines that begin between them belong to the
    part. For parquet they are row groups. ``end`` is None for a whole file; ``size`` is in bytes.
    """

    path: str
    format: Format
    compression: Compression | None = None
    start: int = 0
    end: int | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Corpus:
    """Parts of all corpus files; ``skipped`` are files of an unknown format, found in folders."""

    parts: tuple[Part, ...]
    skipped: tuple[str, ...]

    @property
    def size(self) -> int:
        """Stored size in bytes."""
        return sum(part.size for part in self.parts)

    @property
    def files(self) -> int:
        return len({part.path for part in self.parts})


def find_corpus(sources: Sequence[str], sizes: BufferSizes = DEFAULT_SIZES) -> Corpus:
    """Find the files of paths, folders and globs, without duplicates.

    Raises:
        DataError: A file does not exist or has an unknown format, or a folder or glob has no
            readable file.
    """
    if not sources:
        raise DataError("no corpus given; name at least one file, folder or glob")
    files: dict[str, Part] = {}
    skipped: dict[str, None] = {}
    for source in sources:
        found = {name: _whole(name) for name in _names(source)}
        known = {name: part for name, part in found.items() if part}
        if not known:
            raise data_error(source, f"unknown format; supported are {_known_formats()}")
        files.update(known)
        skipped.update(dict.fromkeys(found.keys() - known.keys()))
    parts = tuple(part for whole in files.values() for part in _split(whole, sizes.part))
    return Corpus(parts, tuple(sorted(skipped)))


@contextmanager
def open_file(path: str) -> Iterator[BinaryIO]:
    with fsspec.open(path, "rb") as file:
        yield cast(BinaryIO, file)


def _names(source: str) -> list[str]:
    with reading(source):
        fs, root = fsspec.core.url_to_fs(source)
        if fs.isfile(root):
            return [source]
        if fs.isdir(root):
            found = fs.find(root)
            if not found:
                raise data_error(source, "the folder is empty; name one that has the corpus")
        elif fs.exists(root):
            raise data_error(source, "neither a file nor a folder; name one")
        else:
            found = [name for name in fs.glob(root) if fs.isfile(name)]
        if not found:
            raise data_error(source, "no such file; check the path")
        local = "file" in fs.protocol
        return sorted(name if local else fs.unstrip_protocol(name) for name in found)


def _whole(path: str) -> Part | None:
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes]
    compression = _COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if compression:
        suffixes.pop()
    kind = _FORMATS.get(suffixes[-1]) if suffixes else None
    if kind is None or (kind is Format.PARQUET and compression):
        return None
    return Part(path, kind, compression)


def _known_formats() -> str:
    return f"{', '.join(_FORMATS)}, except for parquet also with {', '.join(_COMPRESSIONS)}"


def _split(whole: Part, part_bytes: int) -> Iterator[Part]:
    with reading(whole.path):
        fs, root = fsspec.core.url_to_fs(whole.path)
        size = fs.size(root) or 0
        if whole.format is Format.PARQUET:
            yield from _row_groups(whole, size, part_bytes)
        elif whole.format is Format.JSONL and not whole.compression and size:
            for start in range(0, size, part_bytes):
                end = min(start + part_bytes, size)
                yield replace(whole, start=start, end=end, size=end - start)
        else:
            yield replace(whole, size=size)


def _row_groups(whole: Part, size: int, part_bytes: int) -> Iterator[Part]:
    """Combine neighboring row groups, because they may be small."""
    with open_file(whole.path) as file:
        groups = pq.ParquetFile(file).metadata.num_row_groups
    count = max(1, min(groups, size // part_bytes))
    for number in range(count):
        start, end = groups * number // count, groups * (number + 1) // count
        share = size * (number + 1) // count - size * number // count
        yield replace(whole, start=start, end=end, size=share)
