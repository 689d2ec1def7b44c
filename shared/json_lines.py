"""JSON Lines reader: one object per line, optionally gzip; errors name file and line."""

import codecs
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast

import fsspec
from pydantic import BaseModel, ValidationError

from shared.errors import DataError, data_error, reading

# Bytes that are read at once.
_BLOCK = 2**20

RecordT = TypeVar("RecordT", bound=BaseModel)


class TornLineError(DataError):
    """The last line of a file is incomplete, because writing it was interrupted."""


def read_json_lines(path: str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the objects of a JSONL file (gzip if the name ends in ``.gz``) with line numbers.

    Lines count from 1; blank ones are skipped.
    """
    for number, line in read_lines(path):
        yield number, parse_line(f"{path}:{number}", line)


def read_lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, as :func:`read_json_lines` does, but not parsed."""
    compression = "gzip" if path.endswith(".gz") else None
    with reading(path), fsspec.open(path, "rb", compression=compression) as file:
        # Compressed files are not: a block that ends in damaged data would be lost as a whole.
        lines = file if compression else io.BufferedReader(cast(io.RawIOBase, file), _BLOCK)
        for number, line in numbered_lines(path, cast(Iterable[bytes], lines)):
            if not line.isspace():
                yield number, line


def numbered_lines(path: str, file: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of an open file, gzip or not, with their numbers from 1.

    A byte order mark at the begin is left out.
    """
    number = 0
    try:
        for line in file:
            number += 1
            yield number, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        cause = f"the gzip data is truncated or damaged ({error}); fetch the file again"
        raise data_error(f"{path}:{number + 1}", cause) from None


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON
    """Parse a text with integers of any size; of more than 4300 digits they are strings.

    Raises:
        ValueError: It is not JSON.
        RecursionError: It is nested too deeply.
    """
    return json.loads(text, parse_int=_integer)


def _integer(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:  # Python converts no more, and a field that nobody reads may have any value
        return digits


def parse_line(place: str, line: bytes) -> dict[str, object]:
    """Parse one line, which ends in a newline unless it is torn.

    Raises:
        TornLineError: The line is not JSON and has no newline at its end.
        DataError: The line is not a JSON object in UTF-8; the message begins with ``place``.
    """
    try:
        value = parse_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        cause = f"not UTF-8 (byte {error.start + 1} of the line); convert it, or name it .gz"
        raise data_error(place, f"{cause} if it is compressed") from None
    except json.JSONDecodeError as error:
        if not line.endswith(b"\n"):
            cause = "torn last line (not JSON, no newline at the end); remove it or record it again"
            raise TornLineError(str(data_error(place, cause))) from None
        raise data_error(place, f"not JSON ({error.msg} at column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise data_error(place, f"JSON that cannot be used ({error})") from None
    if not isinstance(value, dict):
        raise data_error(place, f"a JSON {type(value).__name__} instead of an object")
    return value


def parse_record(kind: type[RecordT], place: str, line: bytes) -> RecordT:
    """Parse one line as a record; errors are those of :func:`parse_line`.

    Raises:
        ValidationError: The object is not such a record.
    """
    try:
        return kind.model_validate_json(line)
    except ValidationError:
        # Python's parser takes more, as lone surrogates, and tells where a line is damaged.
        return kind.model_validate(parse_line(place, line))
