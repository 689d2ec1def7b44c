"""HTTP application of the reward service: scores, facts about it, health checks, metrics."""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus

from aiohttp import web
from redis import Redis

from services.reward.description import add_description
from services.reward.errors import RefusedError
from services.reward.models import (
    MAX_RUN_BODY,
    BatchRequest,
    RunRequest,
    ScoreItem,
    ScoreOptions,
    ScoreResult,
    ServiceInfo,
    SingleRequest,
    parse_request,
)
from services.reward.requests import body_of, counted, retry_after
from services.reward.scorer import DEADLINE_PASSED, why_not_judged
from services.reward.service import RewardService
from shared.ledger import ping_error
from shared.service.access import Access
from shared.service.health import Readiness
from shared.service.server import add_operations, json_error, json_http_errors, make_application
from shared.versions import release

LINES = "application/x-ndjson"


def make_app(service: RewardService, redis: Redis, *, access: Access) -> web.Application:
    """Create the application of a service that is running; ``redis`` is for its health check."""

    def refused(status: int, message: str, headers: Mapping[str, str]) -> web.Response:
        service.metrics.count_refusal(status, message)
        return json_error(status, message, headers=headers)

    app = make_application(access, middlewares=[json_http_errors()], errors=refused)
    readiness = Readiness(partial(ping_error, redis), details=service.details)
    add_operations(app, readiness, service.metrics.registry)
    _Routes(service).add(app)
    add_description(app)
    return app


class _Routes:
    """Handlers of ``/v1``."""

    def __init__(self, service: RewardService) -> None:
        self._service = service

    def add(self, app: web.Application) -> None:
        metrics = self._service.metrics
        app.router.add_post("/v1/score", counted("/v1/score", metrics, self._score))
        app.router.add_post("/v1/run", counted("/v1/run", metrics, self._run))
        app.router.add_get("/v1/info", counted("/v1/info", metrics, self._info))

    async def _info(self, _request: web.Request) -> web.Response:
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

    async def _score(self, request: web.Request) -> web.StreamResponse:
        limit, setting = self._service.settings.max_body, "PLUMBLINE_REWARD_MAX_BODY"
        body = await body_of(request, parse_request, limit=limit, setting=setting)
        items, options = body.split()
        if isinstance(body, SingleRequest):
            return await self._single(items, options)
        if LINES in request.headers.get("Accept", ""):
            return await self._stream(request, items, options)
        return await self._batch(body)

    async def _single(self, items: list[ScoreItem], options: ScoreOptions) -> web.Response:
        try:
            [result] = await self._service.scorer.score(items, options)
        except RefusedError as error:
            raise error.at(None) from None
        if result.judged:
            return _json(json.dumps(result.document()))
        late = result.reason == DEADLINE_PASSED
        status = HTTPStatus.GATEWAY_TIMEOUT if late else HTTPStatus.SERVICE_UNAVAILABLE
        text = why_not_judged(result, self._service.scorer.deadline_of(options))
        headers = retry_after(result.retry_after) if result.retry_after else {}
        return json_error(status, text, headers=headers)

    async def _batch(self, body: BatchRequest) -> web.Response:
        results = await self._service.scorer.score(*body.split())
        return _json(await asyncio.to_thread(_batch_document, results))

    async def _stream(
        self, request: web.Request, items: list[ScoreItem], options: ScoreOptions
    ) -> web.StreamResponse:
        async with self._service.scorer.stream(items, options) as stream:
            response = web.StreamResponse(headers={"Content-Type": LINES})
            await response.prepare(request)
            judged = 0
            async for group in stream:
                judged += sum(one.result.judged for one in group)
                lines = [
                    json.dumps({"index": one.index, **one.result.document()}) + "\n"
                    for one in group
                ]
                await response.write("".join(lines).encode())
            last = {"done": True, "judged": judged, "unjudged": len(items) - judged}
            await response.write(f"{json.dumps(last)}\n".encode())
            await response.write_eof()
            return response

    async def _run(self, request: web.Request) -> web.Response:
        body = await body_of(request, RunRequest.model_validate, limit=MAX_RUN_BODY)
        result = await self._service.programs.run(body.program, body.deadline)
        self._service.metrics.count_program(result.status)
        return _json(result.model_dump_json())


def _batch_document(results: list[ScoreResult]) -> str:
    return json.dumps({"results": [result.document() for result in results]})


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")
