"""Documents of JSONL: every string in a line, wherever it is nested."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import IOBase
from typing import BinaryIO, cast

import pyarrow as pa

from services.data.contamination.files import Part, open_file
from services.data.contamination.tally import Document
from shared.errors import DataError
from shared.reading import reading

# A line is held four times, and an emoji makes each of its characters 4 bytes.
LONGEST_LINE = 1 << 23
_BLOCK = 1 << 20


class RowError(DataError):
    """A row that cannot be used, counted from the part's first."""

    def __init__(self, row: int, cause: str) -> None:
        super().__init__(row, cause)
        self.row = row
        self.cause = cause


@dataclass(slots=True)
class RowCounter:
    """How many rows or lines of a part were read."""

    rows: int = 0


def read_lines(part: Part, counter: RowCounter) -> Iterator[Document]:
    """Yield the lines that begin in the part, but for blank ones; ``counter`` counts all.

    Raises:
        RowError: While iterating: a line is damaged or over 8 MiB.
        DataError: While iterating: the file cannot be read.
    """
    for line in _split_lines(part):
        counter.rows += 1
        if len(line) > LONGEST_LINE:
            cause = f"a line over {LONGEST_LINE >> 20} MiB"
            raise RowError(counter.rows, f"{cause}; split the document, or give it as a .txt file")
        if line.strip():
            yield Document(counter.rows, strings(_parse(counter.rows, line)))


def strings(value: object) -> Iterator[str]:
    """The strings in a JSON value, in order; keys are not among them."""
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
    """Open the part's file at its beginning, decompressed."""
    with open_file(part.path) as file:
        if part.compression is None:
            yield file
        else:
            raw = pa.PythonFile(cast(IOBase, file), mode="r")
            with pa.CompressedInputStream(raw, part.compression) as stream:
                yield cast(BinaryIO, stream)


def read_blocks(part: Part, stream: BinaryIO) -> Iterator[bytes]:
    """The rest of a stream, in blocks.

    Raises:
        RowError: Compressed data is cut off or damaged.
    """
    line = 1
    while True:
        try:
            block = stream.read(_BLOCK)
        except OSError as error:
            if part.compression is None:
                raise
            cause = f"the {part.compression} data is cut off or damaged soon after ({error})"
            raise RowError(line, f"{cause}; fetch the file again") from None
        if not block:
            return
        if part.compression:
            line += block.count(b"\n")
        yield block


def _split_lines(part: Part) -> Iterator[bytes]:
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
            if len(rest) > LONGEST_LINE:
                break
        if rest and (part.end is None or position < part.end):
            yield rest


def _first_line(stream: BinaryIO, start: int, end: int) -> int:
    """The offset of the first line that begins between the two, else ``end``."""
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
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        cause = f"not UTF-8 (byte {error.start + 1} of the line); convert it"
    except json.JSONDecodeError as error:
        cause = f"not JSON ({error.msg} at column {error.colno}); JSONL has one value a line"
    except (ValueError, RecursionError) as error:
        cause = f"JSON that cannot be used ({error})"
    raise RowError(row, cause)
