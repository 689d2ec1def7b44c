"""HTTP API of the sandbox server (SandboxFusion's endpoints, health checks, metrics)."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus

from aiohttp import web

from services.sandbox.admission import Admission, SandboxMetrics
from services.sandbox.probe import ChosenIsolation, choose_isolation
from services.sandbox.reaper import Reaper
from services.sandbox.requests import (
    FIELD,
    LOGGED_CHARS,
    Failure,
    Request,
    RequestOutcome,
    parse,
    respond,
)
from services.sandbox.runner import Runner
from services.sandbox.settings import IsolationChoice, SandboxSettings
from services.sandbox.submit import DATASETS, judge, make_plan
from services.sandbox.workspace import DiskFullError, claim, remove_trees, require_space
from shared.harness.sandbox_api import (
    EvalResult,
    RunCodeRequest,
    RunCodeResponse,
    RunStatus,
    SubmitRequest,
)
from shared.harness.wire import CALL_RESULT, RUN_CASES_VERSION, CallResult, RunCasesRequest
from shared.service import openapi
from shared.service.access import Access
from shared.service.bodies import read_body
from shared.service.logs import get_logger
from shared.service.openapi import Route
from shared.service.server import Readiness, add_operations, json_error, make_application

NO_ISOLATION = (
    "programs run without isolation: they can read every file that their user can read, the data "
    "sets with the expected outputs included, and use what 'missing' in /readyz names. "
    "Install bubblewrap, allow user namespaces, or use a kernel with Landlock (5.13 or later); see "
    "'tried' in /readyz."
)

log = get_logger(__name__)


class Server:
    """Request handlers and their shared state."""

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._admission = Admission(settings.concurrency, settings.queue_limit)
        self._metrics = SandboxMetrics(self._admission)
        self._chosen: ChosenIsolation | None = None

    def application(self) -> web.Application:
        app = make_application(Access(self._settings.hosts, self._settings.bearer), errors=_refused)
        app.cleanup_ctx.append(self._choose_isolation)
        readiness = Readiness(self._failure, details=self._details)
        add_operations(app, readiness, self._metrics.registry)
        for route in ROUTES:
            app.router.add_route(route.method, route.path, getattr(self, route.name))
        openapi.add_description(app, "Plumbline sandbox", ROUTES, Failure)
        return app

    async def _choose_isolation(self, _app: web.Application) -> AsyncIterator[None]:
        lock, abandoned = await asyncio.to_thread(claim, self._settings.temp_root)
        self._chosen = await choose_isolation(self._settings, Reaper())
        isolation = self._chosen.isolation
        log.info("isolation", kind=isolation.kind.value, identity=isolation.identity.value)
        if isolation.kind is IsolationChoice.NONE:
            log.warning(
                "no isolation",
                warning=NO_ISOLATION,
                missing=self._chosen.missing(),
                tried=self._chosen.failed,
            )
        warming = asyncio.create_task(self._chosen.runner.warm())
        sweeping = asyncio.create_task(asyncio.to_thread(remove_trees, abandoned))
        yield
        warming.cancel()
        await asyncio.wait([warming, sweeping])
        await self._chosen.runner.close()
        if lock is not None:
            os.close(lock)

    def _failure(self) -> str | None:
        if self._chosen is None:
            return "starting: the isolation is still being probed"
        try:
            require_space(self._settings.temp_root, self._settings.disk_reserve_bytes)
        except DiskFullError as error:
            return str(error)
        return None

    def _details(self) -> dict[str, object]:
        chosen = self._chosen
        if chosen is None:
            return {}
        details = {**chosen.facts(), "concurrency": self._settings.concurrency}
        if chosen.isolation.kind is IsolationChoice.NONE:
            details["warning"] = NO_ISOLATION
        return details

    async def ping(self, _request: web.Request) -> web.Response:
        return web.json_response("pong")

    health = ping

    async def list_datasets(self, _request: web.Request) -> web.Response:
        return web.json_response(list(DATASETS))

    async def run_code(self, http: web.Request) -> web.Response:
        return await respond(self._run(http), self._metrics.requests)

    async def _run(self, http: web.Request) -> RequestOutcome:
        request = await self._body(http, RunCodeRequest)
        async with self._slot(request.language) as (runner, slot):
            answer = await runner.run(request, slot)
        if answer.status is RunStatus.SANDBOX_ERROR:
            message = answer.message[:LOGGED_CHARS]
            log.warning("sandbox error", language=request.language, message=message)
        return answer.status.value, answer

    async def offer_cases(self, _request: web.Request) -> web.Response:
        slots = str(self._settings.concurrency)
        headers = {"Plumbline-Run-Cases": RUN_CASES_VERSION, "Plumbline-Concurrency": slots}
        return web.Response(headers=headers)

    async def run_cases(self, http: web.Request) -> web.Response:
        return await respond(self._cases(http), self._metrics.run_cases)

    async def _cases(self, http: web.Request) -> RequestOutcome:
        request = await self._body(http, RunCasesRequest)
        async with self._slot(request.language) as (runner, slot):
            result = await runner.run_cases(request, slot)
        return result.end or "incomplete", CALL_RESULT.dump_json(result)

    async def submit(self, http: web.Request) -> web.Response:
        return await respond(self._judge(http), self._metrics.submits)

    async def _judge(self, http: web.Request) -> RequestOutcome:
        request = await self._body(http, SubmitRequest)
        # In a thread: a huge record must not block the event loop.
        plan = await asyncio.to_thread(make_plan, request)
        async with self._slot(plan.program.language) as (runner, slot):
            result = await judge(request, plan, partial(runner.run, slot=slot))
        return "accepted" if result.accepted else "not_accepted", result

    async def _body(self, http: web.Request, kind: type[Request]) -> Request:
        return await read_body(
            http,
            lambda body: parse(body, http.content_type, kind),
            limit=self._settings.body_limit_bytes,
            setting="PLUMBLINE_SANDBOX_BODY_LIMIT_BYTES",
        )

    @asynccontextmanager
    async def _slot(self, language: str) -> AsyncIterator[tuple[Runner, int]]:
        """Hold a slot for the duration of the block; yields its number.

        Raises:
            QueueFullError: The queue is full.
        """
        assert self._chosen is not None, "requests arrive only after start-up"
        async with self._admission.slot() as slot:
            started = time.monotonic()
            try:
                yield self._chosen.runner, slot
            finally:
                seconds = time.monotonic() - started
                self._metrics.busy_seconds.inc(seconds)
                self._metrics.run_seconds.labels(language).observe(seconds)


def _refused(status: int, message: str, headers: Mapping[str, str]) -> web.Response:
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        message = HTTPStatus(status).phrase  # all that SandboxFusion answers
    return json_error(status, message, field=FIELD, headers=headers)


ROUTES: tuple[Route, ...] = (
    Route("/v1/ping", "ping", "The word pong", str),
    Route("/health", "health", "The word pong", str),
    Route("/list_datasets", "list_datasets", "Names of the data sets", list[str]),
    Route("/run_code", "run_code", "Results of a program", RunCodeResponse, "post", RunCodeRequest),
    Route("/run_cases", "run_cases", "Results on many inputs", CallResult, "post", RunCasesRequest),
    Route("/run_cases", "offer_cases", "The version of /run_cases", method="head"),
    Route("/submit", "submit", "Verdict on a completion", EvalResult, "post", SubmitRequest),
)


def create_app(settings: SandboxSettings) -> web.Application:
    """Create the application; it chooses the isolation at start-up.

    Raises:
        IsolationError: (at start-up) The configured isolation does not work on this machine.
    """
    return Server(settings).application()
