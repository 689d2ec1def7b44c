"""Foreign JSON: decoding with one kind of error, and validation errors of bounded size."""

import json
from collections.abc import Mapping
from typing import NotRequired, TypedDict

from pydantic import ValidationError
from pydantic_core import from_json

from shared.text import shorten_end

MAX_ERRORS = 5
"""Validation errors that are listed."""

# Characters of a message, of a name in it, and how many of those a location has.
_LONGEST_MESSAGE, _LONGEST_NAME, _LONGEST_LOCATION = 500, 100, 20


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


def _context(values: Mapping[str, object]) -> dict[str, int | float | str]:
    return {
        name: shorten_end(value, _LONGEST_MESSAGE) if isinstance(value, str) else value
        for name, value in values.items()
        if isinstance(value, int | float | str)
    }
