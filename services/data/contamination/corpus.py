"""Corpus files as chunks of a few megabytes: JSONL lines, parquet row groups, passages of text.

The files are read, and decompressed, by one process; the chunks are parsed by the workers.
"""

import json
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import PurePosixPath
from typing import BinaryIO, Literal, NamedTuple, cast

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import from_json

from shared.errors import DataError, data_error, reading

Compression = Literal["gzip", "zstd", "bz2"]
_COMPRESSIONS: Mapping[str, Compression] = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}


# Sizes in bytes that bound memory: JSONL that a worker takes at once, the longest line, a passage
# of plain text. Results do not depend on them.
CHUNK, LINE, PASSAGE = 1 << 22, 1 << 23, 1 << 19
# Characters that neighboring passages share. A long problem with its solution should fit into them.
OVERLAP = 1 << 16


class Format(StrEnum):
    JSONL = "jsonl"
    PARQUET = "parquet"
    TEXT = "text"


_FORMATS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), Format.JSONL),
    **dict.fromkeys((".parquet", ".pq"), Format.PARQUET),
    **dict.fromkeys((".txt", ".text", ".md", ".rst", ".py", ".tex", ".html"), Format.TEXT),
}


class CorpusFile(NamedTuple):
    """A file; ``size`` is in stored bytes."""

    path: str
    format: Format
    compression: Compression | None = None
    size: int = 0


class Chunk(NamedTuple):
    """A piece of a file: lines, a passage, or the number of a row group.

    ``row`` is its first row or line, from 1; ``done`` the share of the file that is read with it.
    """

    file: CorpusFile
    row: int
    content: bytes | str | int
    done: float


class Document(NamedTuple):
    """The texts of a row, line or passage; ``row`` is its number in the file, from 1."""

    row: int
    texts: list[str]


# Files


def find_corpus(sources: Sequence[str]) -> tuple[list[CorpusFile], tuple[str, ...]]:
    """Find the files of paths, folders and globs, without duplicates.

    Returns:
        The files, and the paths of files of an unknown format, found in folders.

    Raises:
        DataError: A file does not exist or has an unknown format, or a folder or glob has no
            readable file.
    """
    if not sources:
        raise DataError("no corpus given; name at least one file, folder or glob")
    files: dict[str, CorpusFile] = {}
    skipped: set[str] = set()
    for source in sources:
        names = _names(source)
        readable = {name: file for name in names if (file := _corpus_file(name))}
        if not readable:
            cause = f"unknown format; supported are {', '.join(_FORMATS)}, except for parquet also"
            raise data_error(source, f"{cause} with {', '.join(_COMPRESSIONS)}")
        files.update(readable)
        skipped.update(set(names) - readable.keys())
    return list(files.values()), tuple(sorted(skipped))


def _names(source: str) -> list[str]:
    with reading(source):
        fs, root = fsspec.core.url_to_fs(source)
        if fs.isfile(root):
            return [source]
        if fs.isdir(root):
            names = fs.find(root)
            if not names:
                raise data_error(source, "the folder is empty; name one that has the corpus")
        elif fs.exists(root):
            raise data_error(source, "neither a file nor a folder; name one")
        else:
            names = [name for name in fs.glob(root) if fs.isfile(name)]
        if not names:
            raise data_error(source, "no such file; check the path")
        local = "file" in fs.protocol
        return sorted(name if local else fs.unstrip_protocol(name) for name in names)


def _corpus_file(path: str) -> CorpusFile | None:
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes]
    compression = _COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if compression:
        suffixes.pop()
    kind = _FORMATS.get(suffixes[-1]) if suffixes else None
    if kind is None or (kind is Format.PARQUET and compression):
        return None
    with reading(path):
        fs, root = fsspec.core.url_to_fs(path)
        return CorpusFile(path, kind, compression, fs.size(root) or 0)


# Chunks


def read_chunks(file: CorpusFile) -> Iterator[Chunk]:
    """Yield the chunks of a file, in order.

    Raises:
        DataError: While iterating: the file cannot be read, or a line is too long.
    """
    with reading(file.path):
        if file.format is Format.PARQUET:
            yield from _row_groups(file)
        elif file.format is Format.TEXT:
            yield from _passages(file)
        else:
            yield from _line_blocks(file)


@contextmanager
def _opened(file: CorpusFile) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file, and the decompressed stream in it."""
    with fsspec.open(file.path, "rb") as stored:
        if file.compression is None:
            yield stored, stored
            return
        with pa.input_stream(stored, file.compression) as stream:
            yield stored, cast(BinaryIO, stream)


def _damaged(file: CorpusFile, line: int, error: OSError) -> DataError | OSError:
    if file.compression is None:
        return error
    cause = f"the {file.compression} data is truncated or damaged soon after ({error})"
    return data_error(f"{file.path}:{line}", f"{cause}; fetch the file again")


def _line_blocks(file: CorpusFile) -> Iterator[Chunk]:
    line, rest = 1, b""
    with _opened(file) as (stored, stream):
        while True:
            try:
                block = stream.read(CHUNK)
            except OSError as error:
                raise _damaged(file, line, error) from None
            whole, newline, tail = (rest + block).rpartition(b"\n")
            if not block:
                break
            if len(whole.partition(b"\n")[0]) > LINE:  # it began in an earlier block
                raise _too_long(file.path, line)
            if newline:
                yield Chunk(file, line, whole, stored.tell() / max(1, file.size))
                line += whole.count(b"\n") + 1
            rest = tail
            if len(rest) > LINE:
                raise _too_long(file.path, line)
    if rest:
        yield Chunk(file, line, rest, 1.0)


def _too_long(path: str, line: int) -> DataError:
    cause = f"a line over {LINE >> 20} MiB; split the document, or pass it as a .txt file"
    return data_error(f"{path}:{line}", cause)


def _passages(file: CorpusFile) -> Iterator[Chunk]:
    """Yield overlapping passages, since a file may be larger than memory."""
    line, held = 1, ""
    decoder = getincrementaldecoder("utf-8")()
    with _opened(file) as (stored, stream):
        while True:
            try:
                block = stream.read(PASSAGE)
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line += held.count("\n") + error.object.count(b"\n", 0, error.start)
                raise data_error(f"{file.path}:{line}", "not UTF-8; convert the file") from None
            except OSError as error:
                raise _damaged(file, line + held.count("\n"), error) from None
            if not block:
                return
            line += held.count("\n", 0, -OVERLAP)
            held = held[-OVERLAP:] + text
            yield Chunk(file, line, held, stored.tell() / max(1, file.size))


def _row_groups(file: CorpusFile) -> Iterator[Chunk]:
    with fsspec.open(file.path, "rb") as stored:
        metadata = pq.ParquetFile(stored).metadata
    row = 1
    for number in range(metadata.num_row_groups):
        yield Chunk(file, row, number, (number + 1) / metadata.num_row_groups)
        row += metadata.row_group(number).num_rows


# Documents


def read_documents(chunk: Chunk) -> Iterator[Document]:
    """Yield the documents of a chunk; of JSONL and parquet every string is read, at any depth.

    Raises:
        DataError: While iterating: a line or row cannot be used; names file and line.
    """
    if isinstance(chunk.content, str):
        yield Document(chunk.row, [chunk.content])
    elif isinstance(chunk.content, int):
        yield from _rows(chunk.file.path, chunk.row, chunk.content)
    else:
        for number, line in enumerate(chunk.content.split(b"\n"), start=chunk.row):
            if line.strip():
                yield Document(number, list(_strings(_parse(chunk.file.path, number, line))))


def _strings(value: object) -> Iterator[str]:
    """Yield the strings in a JSON value, in order, without keys."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            pending.extend(reversed(value.values()))
        elif isinstance(value, list | tuple):
            pending.extend(reversed(value))


def _parse(path: str, number: int, line: bytes) -> object:
    # The fast parser has other limits and messages, so the standard one has the last word.
    with suppress(ValueError):
        return from_json(line)
    try:
        return json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        cause = f"not UTF-8 (byte {error.start + 1} of the line); convert it"
    except json.JSONDecodeError as error:
        cause = f"not JSON ({error.msg} at column {error.colno}); JSONL has one value per line"
    except (ValueError, RecursionError) as error:
        cause = f"JSON that cannot be used ({error})"
    raise data_error(f"{path}:{number}", cause)


def _rows(path: str, first: int, group: int) -> Iterator[Document]:
    """Yield the rows of a row group, without columns that have no text (numbers, raw bytes)."""
    with reading(path), fsspec.open(path, "rb") as file:
        table = pq.ParquetFile(file, page_checksum_verification=True)
        columns = [field.name for field in table.schema_arrow if _has_text(field.type)]
        if not columns:
            types = ", ".join(f"{field.name}: {field.type}" for field in table.schema_arrow)
            raise data_error(path, f"no column has text ({types}); exclude the file")
        rows: Iterator[dict[str, object]] = (
            row
            for batch in table.iter_batches(64, row_groups=[group], columns=columns)
            for row in batch.to_pylist()
        )
        for number, row in enumerate(rows, start=first):
            yield Document(number, list(_strings(row)))


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_has_text(kind.field(at).type) for at in range(kind.num_fields))
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )
