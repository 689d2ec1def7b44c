"""HTTP application of the reward service: scores, programs, facts, health checks, metrics."""

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from aiohttp import web
from pydantic import ValidationError
from redis import Redis

from services.reward.metrics import RewardMetrics
from services.reward.models import (
    MAX_BODY,
    MAX_RUN_BODY,
    BatchRequest,
    BatchResponse,
    RefusedError,
    RunRequest,
    ScoreItem,
    ScoreOptions,
    ScoreResult,
    ServiceInfo,
    SingleRequest,
    parse_request,
)
from services.reward.scorer import DEADLINE_PASSED, TEST_ERROR
from services.reward.service import RewardService
from shared.foreign_json import JsonError, decode_json, first_errors
from shared.ledger import ping_error
from shared.programs import ProgramResult
from shared.service import openapi
from shared.service.access import Access
from shared.service.bodies import BodyTooLargeError, read_body
from shared.service.openapi import Route
from shared.service.server import (
    Handler,
    Readiness,
    add_operations,
    json_error,
    make_application,
)
from shared.text import plain_message
from shared.versions import release

LINES = "application/x-ndjson"
_CLIENT_GONE = 499

_Body = TypeVar("_Body")


def make_app(service: RewardService, redis: Redis, *, access: Access) -> web.Application:
    """Create the application of a service that is running; ``redis`` is for its health check."""

    def refused(status: int, message: str, headers: Mapping[str, str]) -> web.Response:
        service.metrics.count_refusal(status, message)
        return json_error(status, message, headers=headers)

    app = make_application(access, errors=refused)
    readiness = Readiness(partial(ping_error, redis), details=service.details)
    add_operations(app, readiness, service.metrics.registry)
    handlers = _Handlers(service)
    for route in ROUTES:
        handler = _counted(route.path, service.metrics, getattr(handlers, route.name))
        app.router.add_route(route.method, route.path, handler)
    openapi.add_description(app, "Plumbline reward service", ROUTES)
    return app


class _Handlers:
    """Handlers of ``/v1``."""

    def __init__(self, service: RewardService) -> None:
        self._service = service

    async def info(self, _request: web.Request) -> web.Response:
        session = self._service.session
        info = ServiceInfo(
            version=release(),
            session=session.run,
            fingerprint=session.fingerprint,
            environment=session.environment,
            protocol=session.protocol,
            datasets=self._service.problems.datasets(),
            distrust=await self._service.distrust(),
        )
        return _json(info.model_dump_json())

    async def score(self, request: web.Request) -> web.StreamResponse:
        body = await _body_of(request, parse_request, limit=MAX_BODY)
        if isinstance(body, SingleRequest):
            return await self._single(body)
        if LINES in request.headers.get("Accept", ""):
            return await self._stream(request, body.items, body)
        results = await self._service.scorer.score(body.items, body)
        return _json(await asyncio.to_thread(_batch_document, results))

    async def _single(self, body: SingleRequest) -> web.Response:
        try:
            [result] = await self._service.scorer.score([body], body)
        except RefusedError as error:
            error.index = None  # no batch
            raise
        if result.judged:
            return _json(json.dumps(result.document()))
        status, text = HTTPStatus.SERVICE_UNAVAILABLE, f"not judged: {result.reason}"
        if result.reason == DEADLINE_PASSED:
            status = HTTPStatus.GATEWAY_TIMEOUT
            text = f"not judged within the deadline of {body.deadline:g} s"
        elif result.reason == TEST_ERROR:
            text += " (its tests cannot run, whatever the completion is)"
        return json_error(status, text, headers=_retry_after(result.retry_after))

    async def _stream(
        self, request: web.Request, items: list[ScoreItem], options: ScoreOptions
    ) -> web.StreamResponse:
        async with self._service.scorer.stream(items, options) as stream:
            response = web.StreamResponse(headers={"Content-Type": LINES})
            await response.prepare(request)
            judged = 0
            async for results in stream:
                judged += sum(result.judged for result in results.values())
                lines = [{"index": index, **r.document()} for index, r in results.items()]
                await response.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
            last = {"done": True, "judged": judged, "unjudged": len(items) - judged}
            await response.write(f"{json.dumps(last)}\n".encode())
            await response.write_eof()
            return response

    async def run(self, request: web.Request) -> web.Response:
        body = await _body_of(request, RunRequest.model_validate, limit=MAX_RUN_BODY)
        result = await self._service.programs.run(body, body.deadline)
        self._service.metrics.programs.labels(result.status.value).inc()
        return _json(result.model_dump_json())


def _batch_document(results: list[ScoreResult]) -> str:
    return json.dumps({"results": [result.document() for result in results]})


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")


# Requests


async def _body_of(request: web.Request, parse: Callable[[object], _Body], *, limit: int) -> _Body:
    """Read, decode and validate a body of at most ``limit`` bytes, in a thread if it is large.

    Raises:
        RefusedError: The body is too large, not JSON, or has another shape.
    """

    def decode(body: bytes) -> _Body:
        try:
            return parse(decode_json(body))
        except JsonError as error:
            text = f"the body is not usable JSON: {error} (at byte {error.position})"
        except ValidationError as error:
            details = first_errors(error)
            places = [".".join(map(str, detail["loc"])) for detail in details]
            messages = [plain_message(detail["msg"]) for detail in details]
            parts = zip(places, messages, strict=True)
            text = "; ".join(": ".join(filter(None, part)) for part in parts)
        raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, text)

    try:
        return await read_body(request, decode, limit=limit)
    except BodyTooLargeError as error:
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from None


def _counted(route: str, metrics: RewardMetrics, handler: Handler) -> Handler:
    """Wrap a handler: refusals become responses, and every request is counted, however it ends.

    In a refusal ``items`` lists the item at fault, for programs.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        code, reason = HTTPStatus.INTERNAL_SERVER_ERROR.value, ""
        try:
            response = await handler(request)
            code = response.status
            return response
        except RefusedError as error:
            code, reason = error.status, str(error)
            document: dict[str, object] = {"error": reason}
            if error.index is not None:
                document["items"] = [{"index": error.index, "error": error.message}]
            headers = _retry_after(error.retry_after)
            return web.json_response(document, status=code, headers=headers)
        except (asyncio.CancelledError, ConnectionResetError):
            code = _CLIENT_GONE
            raise
        finally:
            metrics.count_request(route, code, reason)

    return handle


def _retry_after(seconds: float | None) -> dict[str, str]:
    """The header ``Retry-After``, in whole seconds and at least one; none for None."""
    return {} if seconds is None else {"Retry-After": str(max(1, math.ceil(seconds)))}


# Description

ROUTES: tuple[Route, ...] = (
    Route(
        "/v1/score",
        "score",
        "Scores of one or many completions",
        ScoreResult | BatchResponse,
        method="post",
        body=SingleRequest | BatchRequest,
    ),
    Route(
        "/v1/run",
        "run",
        "Output of a program, as a model's tool needs it",
        ProgramResult,
        method="post",
        body=RunRequest,
    ),
    Route("/v1/info", "info", "Version, protocol and data sets", ServiceInfo),
)
