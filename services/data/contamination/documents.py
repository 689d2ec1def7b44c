"""Document readers for corpus parts: JSONL lines, parquet rows, or passages of plain text.

From JSONL and parquet every string is read, at any depth.
"""

import codecs
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import IOBase
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import from_json

from services.data.contamination.files import DEFAULT_SIZES, BufferSizes, Part, open_file
from shared.errors import DataError, data_error, reading

_BLOCK = 1 << 20  # bytes
_BATCH_BYTES = 1 << 22
_MAX_BATCH_ROWS = 1024
_BLANKS = (" ", "\n", "\t")


@dataclass(frozen=True, slots=True)
class Document:
    """The texts of a row, line or passage; ``row`` is its number in the file, from 1."""

    row: int
    texts: Iterable[str]


class RowError(DataError):
    """An unusable row; ``row`` counts from the start of the part."""

    def __init__(self, row: int, cause: str) -> None:
        super().__init__(row, cause)
        self.row = row
        self.cause = cause


@dataclass(slots=True)
class RowCounter:
    """Number of rows or lines read from a part."""

    rows: int = 0


# JSONL


def read_lines(
    part: Part, counter: RowCounter, sizes: BufferSizes = DEFAULT_SIZES
) -> Iterator[Document]:
    """Yield the lines that begin in the part, except blank ones; ``counter`` counts all.

    Raises:
        RowError: While iterating: a line is damaged or too long.
        DataError: While iterating: the file cannot be read.
    """
    for line in _split_lines(part, sizes.line):
        counter.rows += 1
        if len(line) > sizes.line:
            cause = f"a line over {sizes.line >> 20} MiB"
            raise RowError(counter.rows, f"{cause}; split the document, or pass it as a .txt file")
        if line.strip():
            yield Document(counter.rows, strings(_parse(counter.rows, line)))


def strings(value: object) -> Iterator[str]:
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


@contextmanager
def open_stream(part: Part) -> Iterator[BinaryIO]:
    """Open the part's file at its start, decompressed."""
    with open_file(part.path) as file:
        if part.compression is None:
            yield file
        else:
            raw = pa.PythonFile(cast(IOBase, file), mode="r")
            with pa.CompressedInputStream(raw, part.compression) as stream:
                yield cast(BinaryIO, stream)


def read_blocks(part: Part, stream: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of a stream in blocks.

    Raises:
        RowError: Compressed data is truncated or damaged.
    """
    line = 1
    while True:
        try:
            block = stream.read(_BLOCK)
        except OSError as error:
            if part.compression is None:
                raise
            cause = f"the {part.compression} data is truncated or damaged soon after ({error})"
            raise RowError(line, f"{cause}; fetch the file again") from None
        if not block:
            return
        if part.compression:
            line += block.count(b"\n")
        yield block


def _split_lines(part: Part, longest: int) -> Iterator[bytes]:
    with reading(part.path), open_stream(part) as stream:
        position = part.start
        if part.end is not None:
            position = _first_line(stream, part.start, part.end)
            stream.seek(position)
        rest = b""
        for block in read_blocks(part, stream):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                if part.end is not None and position >= part.end:
                    return
                position += len(line) + 1
                yield line
            if len(rest) > longest:
                break
        if rest and (part.end is None or position < part.end):
            yield rest


def _first_line(stream: BinaryIO, start: int, end: int) -> int:
    """Find the offset of the first line that begins between ``start`` and ``end``, else ``end``."""
    if start == 0:
        return 0
    position = stream.seek(start - 1)
    while position < end and (block := stream.read(_BLOCK)):
        found = block.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += len(block)
    return end


def _parse(row: int, line: bytes) -> object:
    # The fast parser has other limits and messages, so the standard one has the last word.
    with suppress(ValueError):
        return from_json(line)
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        cause = f"not UTF-8 (byte {error.start + 1} of the line); convert it"
    except json.JSONDecodeError as error:
        cause = f"not JSON ({error.msg} at column {error.colno}); JSONL has one value per line"
    except (ValueError, RecursionError) as error:
        cause = f"JSON that cannot be used ({error})"
    raise RowError(row, cause)


# Plain text


def read_passages(
    part: Part, counter: RowCounter, sizes: BufferSizes = DEFAULT_SIZES
) -> Iterator[Document]:
    """Yield overlapping passages, since a file may be larger than memory.

    The row of a passage is its first line. Passages begin and end at a blank; a word longer than a
    passage is split.

    Raises:
        RowError: While iterating: bytes that are not UTF-8, or damaged compressed data.
        DataError: While iterating: the file cannot be read.
    """
    counter.rows = 1
    held = ""
    for piece in _decoded(part):
        held += piece
        while len(held) > sizes.passage:
            end = _blank_before(held, sizes.passage, sizes.overlap // 2)
            yield Document(counter.rows, [held[:end]])
            start = _blank_before(held, end - sizes.overlap, sizes.overlap // 2)
            counter.rows += held.count("\n", 0, start)
            held = held[start:]
    if held:
        yield Document(counter.rows, [held])


def _decoded(part: Part) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = 1
    with reading(part.path), open_stream(part) as stream:
        for block in read_blocks(part, stream):
            yield _decode(decoder, block, lines)
            lines += block.count(b"\n")
        yield _decode(decoder, b"", lines, final=True)


def _decode(
    decoder: codecs.IncrementalDecoder, block: bytes, line: int, final: bool = False
) -> str:
    try:
        return decoder.decode(block, final)
    except UnicodeDecodeError as error:
        line += error.object.count(b"\n", 0, error.start)
        raise RowError(line, "not UTF-8; convert the file") from None


def _blank_before(text: str, end: int, reach: int) -> int:
    """Find the last blank within ``reach`` characters before ``end``, else ``end``."""
    nearest = max(text.rfind(blank, end - reach, end) for blank in _BLANKS)
    return nearest if nearest > 0 else end


# Parquet


def read_rows(
    part: Part, counter: RowCounter, sizes: BufferSizes = DEFAULT_SIZES
) -> Iterator[Document]:
    """Yield the rows of the part's row groups.

    Columns without text (numbers, times, raw bytes) are skipped. Memory grows with the largest
    page, because parquet reads pages as a whole; a single value may have tens of megabytes.

    Raises:
        DataError: While iterating: the file cannot be read, or no column has text.
    """
    with reading(part.path), open_file(part.path) as file:
        table = pq.ParquetFile(file, page_checksum_verification=True)
        columns = [field.name for field in table.schema_arrow if _has_text(field.type)]
        if not columns:
            types = ", ".join(f"{field.name}: {field.type}" for field in table.schema_arrow)
            raise data_error(part.path, f"no column has text ({types}); exclude the file")
        groups = list(range(part.start, table.num_row_groups if part.end is None else part.end))
        batches = table.iter_batches(
            _rows_at_once(table), row_groups=groups, columns=columns, use_threads=False
        )
        for batch in batches:
            for row in batch.to_pylist():
                counter.rows += 1
                yield Document(counter.rows, strings(row))


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_has_text(kind.field(at).type) for at in range(kind.num_fields))
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _rows_at_once(table: pq.ParquetFile) -> int:
    """Choose the number of rows for a batch of a few megabytes; at least one."""
    groups = range(table.num_row_groups)
    size = sum(table.metadata.row_group(group).total_byte_size for group in groups)
    rows = max(1, table.metadata.num_rows)
    return max(1, min(_MAX_BATCH_ROWS, _BATCH_BYTES * rows // max(1, size)))
