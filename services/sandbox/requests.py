"""Request parsing, validation errors and error responses in SandboxFusion's format.

Errors are ``{"detail": …}`` as in FastAPI: a list of pydantic errors for an invalid body (422),
otherwise a message.
"""

import asyncio
from collections.abc import Awaitable
from http import HTTPStatus
from typing import TypeVar

from aiohttp import web
from prometheus_client import Counter
from pydantic import BaseModel, ConfigDict, ValidationError

from services.sandbox.admission import QueueFullError
from services.sandbox.slots import SlotLostError
from services.sandbox.submit import DatasetError
from services.sandbox.workspace import DiskFullError
from shared.foreign_json import ErrorDetail, JsonError, decode_json, first_errors
from shared.service.bodies import BodyTooLargeError
from shared.service.logs import get_logger
from shared.service.server import json_error

LOGGED_CHARS = 500  # a detail may quote the whole request
FIELD = "detail"

log = get_logger(__name__)

Request = TypeVar("Request", bound=BaseModel)

RequestOutcome = tuple[str, BaseModel | bytes]
"""Value of the metric's outcome label, and the body of the response: a model, or JSON."""


class InvalidField(BaseModel):
    """A field that is wrong: its place in the body, and the reason."""

    model_config = ConfigDict(extra="allow")

    type: str
    loc: list[int | str]
    msg: str


class Failure(BaseModel):
    """Body of every response with a status of 400 or above."""

    detail: str | list[InvalidField]


class InvalidRequestError(Exception):
    """A body that does not match its endpoint's model.

    Attributes:
        detail: Pydantic-style errors for the 422 response.
    """

    def __init__(self, detail: list[ErrorDetail]) -> None:
        super().__init__("invalid request")
        self.detail = detail


async def respond(work: Awaitable[RequestOutcome], counter: Counter) -> web.Response:
    """Await ``work``, count its outcome, and convert its result or error to a response."""
    try:
        outcome, body = await work
    except InvalidRequestError as error:
        counter.labels("invalid").inc()
        return json_error(HTTPStatus.UNPROCESSABLE_ENTITY, error.detail, field=FIELD)
    except BodyTooLargeError as error:
        counter.labels("invalid").inc()
        return json_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error), field=FIELD)
    except DatasetError as error:
        at_fault = error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        counter.labels("refused" if at_fault else "failed").inc()
        (log.info if at_fault else log.warning)(
            "dataset request failed", detail=str(error)[:LOGGED_CHARS]
        )
        return json_error(error.status, str(error), field=FIELD)
    except (QueueFullError, DiskFullError) as error:
        counter.labels("rejected").inc()
        (log.error if isinstance(error, DiskFullError) else log.info)(
            "request rejected", reason=str(error)
        )
        retry = {"Retry-After": str(error.retry_after)}
        return json_error(HTTPStatus.SERVICE_UNAVAILABLE, str(error), field=FIELD, headers=retry)
    except SlotLostError as error:
        counter.labels("failed").inc()
        log.error("slot does not start", reason=str(error))
        return json_error(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), field=FIELD)
    except asyncio.CancelledError:
        counter.labels("cancelled").inc()
        raise
    counter.labels(outcome).inc()
    text = body if isinstance(body, bytes) else body.model_dump_json()
    return web.Response(body=text, content_type="application/json")


def parse(body: bytes, content_type: str, model: type[Request]) -> Request:
    """Validate a request body.

    Raises:
        InvalidRequestError: The body is invalid; the errors have the wording of SandboxFusion.
    """
    if not body:
        raise InvalidRequestError([ErrorDetail(type="missing", loc=["body"], msg="Field required")])
    try:
        return model.model_validate(_decode(body, content_type))
    except JsonError as error:
        raise InvalidRequestError([_json_error(error)]) from None
    except ValidationError as error:
        raise InvalidRequestError([_located(detail) for detail in first_errors(error)]) from None


def _decode(body: bytes, content_type: str) -> object:
    if content_type != "application/json" and not content_type.endswith("+json"):
        return ""  # a text, which no model accepts
    return decode_json(body)


def _located(detail: ErrorDetail) -> ErrorDetail:
    located = detail | ErrorDetail(
        type=detail["type"], loc=["body", *detail["loc"]], msg=detail["msg"]
    )
    if detail["type"] == "model_type":
        # FastAPI reports this error for anything but an object.
        located["type"] = "model_attributes_type"
        located["msg"] = "Input should be a valid dictionary or object to extract fields from"
        located.pop("ctx", None)
    return located


def _json_error(error: JsonError) -> ErrorDetail:
    return ErrorDetail(
        type="json_invalid",
        loc=["body", error.position],
        msg="JSON decode error",
        ctx={"error": str(error)},
    )
