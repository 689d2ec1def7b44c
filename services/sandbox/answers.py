"""From the outcome of a request to its HTTP answer."""

import asyncio
from collections.abc import Awaitable
from http import HTTPStatus

from aiohttp import web
from prometheus_client import Counter
from pydantic import BaseModel

from services.sandbox.admission import QueueFullError
from services.sandbox.bodies import InvalidRequestError
from services.sandbox.submit.errors import SubmitError
from shared.service.logs import get_logger
from shared.service.server import json_error

LOGGED = 500  # characters of a detail, which may quote the request

log = get_logger(__name__)

Outcome = tuple[str, BaseModel]
"""What a request is counted as, and the body of its answer."""


async def answered(work: Awaitable[Outcome], requests: Counter) -> web.Response:
    """Wait for ``work``, count it in ``requests`` and answer, its errors too."""
    try:
        outcome, body = await work
    except InvalidRequestError as error:
        requests.labels("invalid").inc()
        return json_error(HTTPStatus.UNPROCESSABLE_ENTITY, error.detail, field="detail")
    except SubmitError as error:
        at_fault = error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        requests.labels("refused" if at_fault else "failed").inc()
        (log.info if at_fault else log.warning)("dataset_error", detail=str(error)[:LOGGED])
        return json_error(error.status, str(error), field="detail")
    except QueueFullError as error:
        requests.labels("rejected").inc()
        log.info("rejected", reason=str(error))
        retry = {"Retry-After": str(error.retry_after)}
        return json_error(HTTPStatus.SERVICE_UNAVAILABLE, str(error), field="detail", headers=retry)
    except asyncio.CancelledError:
        requests.labels("cancelled").inc()
        raise
    requests.labels(outcome).inc()
    return web.Response(body=body.model_dump_json(), content_type="application/json")
