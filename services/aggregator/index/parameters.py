"""Texts of parameters: lists of values, and ranges."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

MOST_VALUES, _MOST_CHARACTERS = 50, 4000
UNKNOWN = "-"
# A backslash before anything but these, or at the end, is an error.
_ITEM = re.compile(r"(?:[^,\\]|\\[,\\-])*")
_NUMBER = r"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_RANGE = re.compile(rf"({_NUMBER})?\.\.({_NUMBER})?")


Choice = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds, both included; None for none. What is not known is in no range."""

    low: float | None = None
    high: float | None = None


def choices(text: str) -> Choice:
    """Parse a list of values: separated by commas, ``-`` is None, escaped by backslashes.

    Raises:
        PydanticCustomError: An item is empty, there are more than 50, or a backslash escapes
            nothing; the message says what to write.
    """
    found: list[str | None] = []
    at = 0
    if len(text) > _MOST_CHARACTERS:
        raise _invalid(f"more than {_MOST_CHARACTERS} characters")
    while True:
        item = _ITEM.match(text, at)
        assert item is not None
        if item.end() < len(text) and text[item.end()] == "\\":
            raise _invalid("a backslash escapes a comma, a backslash or a hyphen alone")
        if not item[0]:
            raise _invalid("a value is empty; write values with a comma between them")
        found.append(None if item[0] == UNKNOWN else re.sub(r"\\(.)", r"\1", item[0]))
        at = item.end() + 1
        if item.end() == len(text):
            break
    if len(found) > MOST_VALUES:
        raise _invalid(f"more than {MOST_VALUES} values")
    return tuple(dict.fromkeys(found))


def one_of(values: Iterable[str]) -> AfterValidator:
    """A validator of choices whose values are all among ``values``."""
    known = [str(value) for value in values]

    def check(found: Choice) -> Choice:
        for value in found:
            if value is not None and value not in known:
                raise _invalid(f"{value[:50]!r} is none of {', '.join(known)}")
        return found

    return AfterValidator(check)


def text_range(text: str) -> Range:
    """Parse a range: ``MIN..MAX``, ``MIN..`` or ``..MAX``.

    Raises:
        PydanticCustomError: It is none of these, not finite, or reversed.
    """
    found = _RANGE.fullmatch(text)
    if found is None or text == "..":
        raise _invalid("not a range; write MIN..MAX, MIN.. or ..MAX")
    low, high = (None if bound is None else float(bound) for bound in found.groups())
    if not all(math.isfinite(bound) for bound in (low, high) if bound is not None):
        raise _invalid("a bound is too large")
    if low is not None and high is not None and low > high:
        raise _invalid("the range is reversed; write the smaller bound first")
    return Range(low, high)


def _invalid(reason: str) -> PydanticCustomError:
    return PydanticCustomError("parameter", "{reason}", {"reason": reason})


def _parsed(parse: Callable[[str], object]) -> BeforeValidator:
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


_TEXT = WithJsonSchema({"type": "string"})
Choices = Annotated[Choice, _parsed(choices), _TEXT]
"""Values of which a sample has to have one, None for one that is not known; a text is parsed."""
Bounds = Annotated[Range, _parsed(text_range), _TEXT]
"""A range; a text is parsed."""
