"""Foreign JSON: decoded in bounded time and memory, with validation errors of bounded size.

What holds more values than any message of ours is refused before it is decoded, and of wrong
values the first few are reported, without their content.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from pydantic import ValidationError
from pydantic_core import from_json

from shared.text import shorten_end

MAX_VALUES = 200_000
"""Values (members of arrays and objects) of one document."""
MAX_DEPTH = 200
"""Arrays and objects inside each other; also the decoder's own limit."""
MAX_ERRORS = 5
"""Validation errors that are listed."""

# Characters of a message, of a name in it, and how many of those a location has.
_LONGEST_MESSAGE, _LONGEST_NAME, _LONGEST_LOCATION = 500, 100, 20
# A document has at most one value more than it has of these marks; they are counted in pieces.
_MARKS, _SCANNED = (b",", b"[", b"{"), 256 * 1024
_NO_BACKSLASH = re.compile(rb"[^\\]")


# Decoding


class JsonError(ValueError):
    """Bytes that are not JSON, or hold more than a request may.

    Attributes:
        position: Offset of the error, 0 where it is about the whole.
    """

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


def decode_json(text: bytes | str, *, strict: bool = True, finite: bool = False) -> object:
    """Decode JSON in UTF-8. Lone surrogates of escape sequences are kept.

    Args:
        text: The document.
        strict: Refuse control characters in strings.
        finite: Refuse NaN and Infinity.

    Raises:
        JsonError: It is not JSON, is nested too deeply, or has too many values.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if has_many_values(data):
        raise JsonError(f"more than {MAX_VALUES} values")
    try:
        return from_json(data, allow_inf_nan=not finite)
    except ValueError:  # what only the standard library decodes, and what it describes in its words
        return _decode_leniently(text, strict, finite)


def _decode_leniently(text: bytes | str, strict: bool, finite: bool) -> object:
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        constant = _refuse_constant if finite else None
        document = json.loads(text, strict=strict, parse_constant=constant)
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
    if _depth_exceeds(document, MAX_DEPTH):
        raise JsonError("nested too deeply")
    return document


def _refuse_constant(name: str) -> None:
    raise JsonError(f"{name} is not a number of JSON")


def has_many_values(data: bytes, most: int = MAX_VALUES) -> bool:
    """Whether a document has more than ``most`` values, by its commas and opening brackets.

    Those in strings do not count. They are told apart only where it matters, piece by piece, so
    that a document of a million values costs no more than its beginning.
    """
    if sum(map(data.count, _MARKS)) <= most:
        return False
    found, inside, start = 0, False, 0
    while start < len(data):
        # No escape sequence is cut.
        end_of_piece = _NO_BACKSLASH.search(data, start + _SCANNED)
        end = end_of_piece.end() if end_of_piece else len(data)
        piece = data[start:end].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        outside = b"".join(parts[inside::2])
        found += sum(map(outside.count, _MARKS))
        if found > most:
            return True
        inside ^= len(parts) % 2 == 0
        start = end
    return False


def _depth_exceeds(document: object, most: int) -> bool:
    level: Sequence[object] = [document]
    for _ in range(most + 1):
        level = [inner for value in level for inner in _members(value)]
        if not level:
            return False
    return True


def _members(value: object) -> Sequence[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


# Validation


class ErrorDetail(TypedDict):
    """A validation error as pydantic describes it, without the input."""

    type: str
    loc: list[int | str]
    msg: str
    ctx: NotRequired[dict[str, int | float | str]]


def first_errors(error: ValidationError) -> list[ErrorDetail]:
    """Return the first few errors; nothing in them is longer than a few hundred characters."""
    details: list[ErrorDetail] = []
    for item in error.errors(include_url=False, include_input=False)[:MAX_ERRORS]:
        detail = ErrorDetail(
            type=item["type"],
            loc=[_short(part) for part in item["loc"][:_LONGEST_LOCATION]],
            msg=shorten_end(item["msg"], _LONGEST_MESSAGE),
        )
        if context := _context(item.get("ctx", {})):
            detail["ctx"] = context
        details.append(detail)
    return details


def _short(name: int | str) -> int | str:
    return shorten_end(name, _LONGEST_NAME) if isinstance(name, str) else name


def _context(found: Mapping[str, object]) -> dict[str, int | float | str]:
    context: dict[str, int | float | str] = {}
    for name, value in found.items():
        if isinstance(value, int | float):
            context[name] = value
        elif isinstance(value, str):
            context[name] = shorten_end(value, _LONGEST_MESSAGE)
    return context
