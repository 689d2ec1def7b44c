"""Trouble as an answer: always ``{"error": …}``, and headers that every answer carries."""

import json
import sqlite3
from collections.abc import Awaitable, Callable

from aiohttp import web
from redis.exceptions import RedisError

from services.aggregator.api.models import Failure
from shared.service.logs import get_logger

log = get_logger(__name__)

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def bad_request(reason: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(text=_body(reason), content_type="application/json")


def not_found(reason: str) -> web.HTTPNotFound:
    return web.HTTPNotFound(text=_body(reason), content_type="application/json")


def unavailable(reason: str) -> web.HTTPServiceUnavailable:
    return web.HTTPServiceUnavailable(
        text=_body(reason), content_type="application/json", headers={"Retry-After": "2"}
    )


@web.middleware
async def explain(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn the router's refusals, and a store that is away, into answers of the API's kind."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400 or error.content_type == "application/json":
            raise
        allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
        return web.json_response(
            Failure(error=f"{error.reason}: {request.method} {request.path}").model_dump(),
            status=error.status,
            headers=allowed,
        )
    except RedisError as error:
        log.warning("Redis does not answer a question", reason=str(error))
        raise unavailable("Redis does not answer; try again") from None
    except sqlite3.OperationalError as error:
        log.warning("the index does not answer", reason=str(error))
        raise unavailable("the index does not answer; try again") from None


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Forbid browsers to guess, keep or run an answer; a page may have said otherwise."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)


def _body(reason: str) -> str:
    return json.dumps(Failure(error=reason).model_dump())
