"""The HTTP face of the sandbox."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from services.sandbox import bodies
from services.sandbox.admission import Admission, QueueFullError
from services.sandbox.bodies import InvalidRequestError
from services.sandbox.metrics import Metrics
from services.sandbox.probe import Chosen, choose
from services.sandbox.reaper import Reaper
from services.sandbox.schemas import RunCodeRequest, RunCodeResponse, RunStatus
from services.sandbox.settings import IsolationChoice, SandboxSettings
from shared.logs import get_logger

NO_ISOLATION = (
    "programs run without isolation: they can use the network and read what this user can read. "
    "Install bubblewrap, or allow user namespaces, and look at 'tried' in /readyz."
)

log = get_logger(__name__)


class Server:
    """The handlers and what they share."""

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._admission = Admission(settings.concurrency, settings.queue_limit)
        self._metrics = Metrics(self._admission)
        self._chosen: Chosen | None = None

    def application(self) -> web.Application:
        app = web.Application(
            client_max_size=self._settings.body_limit_bytes, middlewares=[_errors_as_json]
        )
        app.cleanup_ctx.append(self._isolate)
        app.router.add_get("/v1/ping", self._ping)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_post("/run_code", self._run_code)
        return app

    async def _isolate(self, _app: web.Application) -> AsyncIterator[None]:
        self._chosen = await choose(self._settings, Reaper())
        isolation = self._chosen.isolation
        log.info("isolation", kind=isolation.kind.value, identity=isolation.identity.value)
        if isolation.kind is IsolationChoice.NONE:
            log.warning("no_isolation", warning=NO_ISOLATION, tried=self._chosen.failed)
        yield

    async def _ping(self, _request: web.Request) -> web.Response:
        return web.json_response("pong")

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def _readyz(self, _request: web.Request) -> web.Response:
        chosen = self._chosen
        if chosen is None:
            return web.json_response({"ready": False}, status=HTTPStatus.SERVICE_UNAVAILABLE)
        state: dict[str, Any] = {
            "ready": True,
            "isolation": chosen.isolation.kind.value,
            "identity": chosen.isolation.identity.value,
            "missing": chosen.missing(),
            "tried": chosen.failed,
            "concurrency": self._settings.concurrency,
        }
        if chosen.isolation.kind is IsolationChoice.NONE:
            state["warning"] = NO_ISOLATION
        return web.json_response(state)

    async def _show_metrics(self, _request: web.Request) -> web.Response:
        text = generate_latest(self._metrics.registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _run_code(self, http: web.Request) -> web.Response:
        try:
            request = bodies.parse(await http.read(), http.content_type)
        except InvalidRequestError as error:
            self._count("invalid")
            return web.json_response(
                {"detail": error.detail}, status=HTTPStatus.UNPROCESSABLE_ENTITY
            )
        try:
            answer = await self._admit(request)
        except QueueFullError as error:
            self._count("rejected")
            log.info("rejected", reason=str(error))
            return web.json_response(
                {"detail": str(error)},
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                headers={"Retry-After": str(error.retry_after)},
            )
        except asyncio.CancelledError:
            self._count("cancelled")
            raise
        self._count(answer.status.value)
        if answer.status is RunStatus.SANDBOX_ERROR:
            log.warning("sandbox_error", language=request.language, message=answer.message)
        return web.Response(body=answer.model_dump_json(), content_type="application/json")

    async def _admit(self, request: RunCodeRequest) -> RunCodeResponse:
        assert self._chosen is not None, "requests come only after start-up"
        async with self._admission.slot() as slot:
            started = time.monotonic()
            try:
                return await self._chosen.runner.run(request, slot)
            finally:
                seconds = time.monotonic() - started
                self._metrics.busy_seconds.inc(seconds)
                self._metrics.run_seconds.labels(request.language).observe(seconds)

    def _count(self, outcome: str) -> None:
        self._metrics.requests.labels(outcome).inc()


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < HTTPStatus.BAD_REQUEST:
            raise
        detail = HTTPStatus(error.status).phrase
        return web.json_response({"detail": detail}, status=error.status)


def create_app(settings: SandboxSettings) -> web.Application:
    """The application; its start-up picks the isolation and fails where a forced one does not work.

    Raises:
        IsolationError: (at start-up) The isolation asked for does not work here.
    """
    return Server(settings).application()
