"""Reading a request's JSON, and answering in the original's way where it is not what it must be."""

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

Request = TypeVar("Request", bound=BaseModel)


class InvalidRequestError(Exception):
    """A body that is not what its endpoint wants.

    Attributes:
        detail: The list of pydantic-style errors that goes into the 422 answer.
    """

    def __init__(self, detail: list[dict[str, Any]]) -> None:
        super().__init__("invalid request")
        self.detail = detail


def parse(body: bytes, content_type: str, model: type[Request]) -> Request:
    """The request in ``body``.

    Raises:
        InvalidRequestError: With what is wrong, as the original would say it.
    """
    if not body:
        missing = {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}
        raise InvalidRequestError([missing])
    try:
        return model.model_validate(_decode(body, content_type))
    except ValidationError as error:
        details: list[dict[str, Any]] = [dict(item) for item in error.errors()]
        for detail in details:
            detail["loc"] = ["body", *detail["loc"]]
            if detail["type"] == "model_type":
                # What the original's framework says for anything but an object.
                detail["type"] = "model_attributes_type"
                detail["msg"] = (
                    "Input should be a valid dictionary or object to extract fields from"
                )
                detail.pop("ctx", None)
        raise InvalidRequestError(details) from error


def _decode(body: bytes, content_type: str) -> object:
    if content_type != "application/json" and not content_type.endswith("+json"):
        return body.decode(errors="replace")
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        raise InvalidRequestError([_json_error(error.pos, error.msg)]) from error
    except (ValueError, RecursionError) as error:  # no UTF-8, or a number of 4300 digits
        raise InvalidRequestError([_json_error(0, str(error))]) from error


def _json_error(position: int, message: str) -> dict[str, Any]:
    return {
        "type": "json_invalid",
        "loc": ["body", position],
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": message},
    }
