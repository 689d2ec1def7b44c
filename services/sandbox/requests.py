"""Request parsing, validation errors and error responses in SandboxFusion's format.

Errors are ``{"detail": …}`` as in FastAPI: a list of pydantic errors for an invalid body (422),
otherwise a message.
"""

import asyncio
import json
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any, TypeVar

from aiohttp import web
from prometheus_client import Counter
from pydantic import BaseModel, ValidationError

from services.sandbox.admission import QueueFullError
from services.sandbox.datasets.base import DatasetError
from services.sandbox.slots import SlotLostError
from services.sandbox.workspace import DiskFullError
from shared.service.logs import get_logger
from shared.service.server import json_error

LOGGED_CHARS = 500  # a detail may quote the whole request
FIELD = "detail"

log = get_logger(__name__)

Request = TypeVar("Request", bound=BaseModel)

RequestOutcome = tuple[str, BaseModel | bytes]
"""Value of the metric's outcome label, and the body of the response: a model, or JSON."""


class InvalidRequestError(Exception):
    """A body that does not match its endpoint's model.

    Attributes:
        detail: Pydantic-style errors for the 422 response.
    """

    def __init__(self, detail: list[dict[str, Any]]) -> None:
        super().__init__("invalid request")
        self.detail = detail


async def respond(work: Awaitable[RequestOutcome], counter: Counter) -> web.Response:
    """Await ``work``, count its outcome, and convert its result or error to a response."""
    try:
        outcome, body = await work
    except InvalidRequestError as error:
        counter.labels("invalid").inc()
        return json_error(HTTPStatus.UNPROCESSABLE_ENTITY, error.detail, field=FIELD)
    except DatasetError as error:
        at_fault = error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        counter.labels("refused" if at_fault else "failed").inc()
        (log.info if at_fault else log.warning)(
            "dataset request failed", detail=str(error)[:LOGGED_CHARS]
        )
        return json_error(error.status, str(error), field=FIELD)
    except (QueueFullError, DiskFullError) as error:
        counter.labels("rejected").inc()
        (log.info if isinstance(error, QueueFullError) else log.error)(
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
        missing = {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}
        raise InvalidRequestError([missing])
    try:
        return model.model_validate(_decode(body, content_type))
    except ValidationError as error:
        details: list[dict[str, Any]] = [dict(item) for item in error.errors()]
        for detail in details:
            detail["loc"] = ["body", *detail["loc"]]
            if detail["type"] == "model_type":
                # FastAPI reports this error for anything but an object.
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
    except (ValueError, RecursionError) as error:  # not UTF-8, or a number of 4300 digits
        raise InvalidRequestError([_json_error(0, str(error))]) from error


def _json_error(position: int, message: str) -> dict[str, Any]:
    return {
        "type": "json_invalid",
        "loc": ["body", position],
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": message},
    }
