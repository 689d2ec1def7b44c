"""Types of the fields of requests and records."""

import json
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError, PydanticKnownError


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PydanticKnownError("string_unicode") from error
    return text


def _from_json(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, strict=False)
    except (ValueError, RecursionError) as error:
        raise PydanticCustomError("json_invalid", "Input should be JSON") from error


Text = Annotated[str, AfterValidator(_encodable)]
"""A string without lone surrogates: those can neither be run nor answered."""

FromJson = BeforeValidator(_from_json)
"""Marks a column of a record that may be JSON or a string with JSON in it."""
