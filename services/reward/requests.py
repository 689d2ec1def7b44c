"""Handling of one request: its body read and validated, its errors as responses."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TypeVar

from aiohttp import web
from pydantic import ValidationError

from services.reward.errors import RefusedError
from services.reward.metrics import RewardMetrics
from shared.foreign_json import JsonError, decode_json, first_errors
from shared.service.bodies import BodyTooLargeError, read_body
from shared.service.server import json_error

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_CLIENT_GONE = 499


async def body_of(
    request: web.Request, parse: Callable[[object], T], *, limit: int, setting: str = ""
) -> T:
    """Read, decode and validate a body.

    Args:
        request: The request.
        limit: The largest size of a body in bytes.
        setting: The variable that sets the limit.
        parse: Makes a model of the decoded JSON; called in a thread if the body is large.

    Raises:
        RefusedError: The body is too large, not JSON, or has another shape.
    """

    def decode(body: bytes) -> T:
        try:
            return parse(decode_json(body))
        except JsonError as error:
            text = f"the body is not usable JSON: {error} (at byte {error.position})"
        except ValidationError as error:
            text = "; ".join(
                f"{'.'.join(map(str, found['loc']))}: {found['msg']}".removeprefix(": ")
                for found in first_errors(error)
            )
        raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, text)

    try:
        return await read_body(request, decode, limit=limit, setting=setting)
    except BodyTooLargeError as error:
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from None


def counted(route: str, metrics: RewardMetrics, handler: Handler) -> Handler:
    """Wrap a handler: refusals become responses, and every request is counted, however it ends."""

    async def handle(request: web.Request) -> web.StreamResponse:
        code, reason = HTTPStatus.INTERNAL_SERVER_ERROR.value, ""
        try:
            response = await handler(request)
            code = response.status
        except RefusedError as error:
            response = refusal(error)
            code, reason = response.status, str(error)
        except web.HTTPException as error:
            code = error.status
            raise
        except (asyncio.CancelledError, ConnectionResetError):
            code = _CLIENT_GONE
            raise
        finally:
            metrics.count_request(route, code, reason)
        return response

    return handle


def refusal(error: RefusedError) -> web.Response:
    """The response to a refused request; ``items`` lists the item at fault, for programs."""
    headers = {} if error.retry_after is None else retry_after(error.retry_after)
    if error.index is None:
        return json_error(error.status, str(error), headers=headers)
    items = [{"index": error.index, "error": error.message}]
    document = {"error": str(error), "items": items}
    return web.json_response(document, status=error.status, headers=headers)


def retry_after(seconds: float) -> dict[str, str]:
    """The header ``Retry-After``, in whole seconds and at least one."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}
