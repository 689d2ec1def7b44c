"""JSON of others: texts, files of lines (optionally gzip), and validation errors of bounded size.

Errors of files name file and line.
"""

import codecs
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NotRequired, TypedDict, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from shared.errors import DataError, data_error, reading
from shared.text import shorten_end

RecordT = TypeVar("RecordT", bound=BaseModel)
MAX_ERRORS = 5
"""Validation errors that are listed."""

# Characters of a message, of a name in it, and how many of those a location has.
_LONGEST_MESSAGE, _LONGEST_NAME, _LONGEST_LOCATION = 500, 100, 20
# Bytes that are read at once.
_BLOCK = 2**20


class JsonError(ValueError):
    """Bytes that are not JSON; ``position`` is the offset, 0 where it is about the whole."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


def decode_json(text: bytes | str, *, strict: bool = True, finite: bool = False) -> object:
    """Decode JSON in UTF-8, of 200 levels at most. Lone surrogates of escape sequences are kept.

    ``strict`` refuses control characters in strings, ``finite`` NaN and Infinity.

    Raises:
        JsonError: It is not JSON, or nested too deeply.
    """
    try:
        return from_json(text, allow_inf_nan=not finite)
    except (ValueError, TypeError) as error:  # the latter of a text with lone surrogates
        if "recursion limit" in str(error):
            raise JsonError("nested too deeply") from None
    # The standard library decodes more, and describes errors in its words.
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        constant = _refuse_constant if finite else None
        return json.loads(text, strict=strict, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, error.pos) from None
    except UnicodeDecodeError as error:
        raise JsonError("the text is not UTF-8", error.start) from None
    except RecursionError:
        raise JsonError("nested too deeply") from None
    except JsonError:
        raise
    except ValueError:
        raise JsonError("a number has too many digits") from None


def _refuse_constant(name: str) -> None:
    raise JsonError(f"{name} is not a number of JSON")


class ErrorDetail(TypedDict):
    """A validation error as pydantic describes it, without the input."""

    type: str
    loc: list[int | str]
    msg: str
    ctx: NotRequired[dict[str, int | float | str]]


def first_errors(error: ValidationError) -> list[ErrorDetail]:
    """Return the first few errors; nothing in them is longer than a few hundred characters."""
    details = []
    for item in error.errors(include_url=False, include_input=False)[:MAX_ERRORS]:
        location = [
            shorten_end(part, _LONGEST_NAME) if isinstance(part, str) else part
            for part in item["loc"][:_LONGEST_LOCATION]
        ]
        message = shorten_end(item["msg"], _LONGEST_MESSAGE)
        detail = ErrorDetail(type=item["type"], loc=location, msg=message)
        if context := _context(item.get("ctx", {})):
            detail["ctx"] = context
        details.append(detail)
    return details


def _context(values: Mapping[str, object]) -> dict[str, int | float | str]:
    return {
        name: shorten_end(value, _LONGEST_MESSAGE) if isinstance(value, str) else value
        for name, value in values.items()
        if isinstance(value, int | float | str)
    }


# Files


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
    import fsspec  # services that read no files are installed without it

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
