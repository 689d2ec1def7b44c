"""The record that a completion is judged by."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from services.sandbox.submit.errors import refused
from services.sandbox.submit.schemas import SubmitRequest

DETAIL_LIMIT = 500

Record = TypeVar("Record", bound=BaseModel)


def read_record(request: SubmitRequest, model: type[Record]) -> Record:
    """The request's record.

    Raises:
        SubmitError: 400, for there are several, or it is not as ``model`` wants it.
    """
    data = request.config.provided_data
    if isinstance(data, list):
        raise refused("request.config.provided_data should be a dict with str -> str | int")
    return checked(data, model)


def checked(data: object, model: type[Record]) -> Record:
    """A record's columns.

    Raises:
        SubmitError: 400, for one is missing or of a wrong type.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise refused(_detail(error)) from error


def _detail(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"the record: {place}: {first['msg']}"[:DETAIL_LIMIT]
