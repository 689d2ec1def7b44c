"""HTTP server of the router: OpenAI's API, forwarded to replicas, and the operations endpoints.

A request is sent once. If its replica fails, the client gets an error and retries; the router sends
nothing more to that replica until it has generated a token again.
"""

import io
import time
import uuid
from asyncio import timeout
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

from services.generator.protocol import (
    WITHOUT_TOKEN,
    CompletionRequest,
    RequestError,
    find_usage,
    is_aborted,
    models_response,
    read_request,
    refused,
)
from services.generator.router.balancer import stopping
from services.generator.router.metrics import scrape
from services.generator.router.replica import Replica, ReplicaFactory
from services.generator.router.supervisor import ReplicaPool
from services.generator.settings import GeneratorSettings
from shared.service.access import Access
from shared.service.logs import get_logger
from shared.service.processes import raise_file_limit
from shared.service.server import Readiness, add_operations, make_application, serve
from shared.text import one_line

log = get_logger(__name__)
Info = Callable[[], Mapping[str, object]]
REPLICA_HEADER = "X-Plumbline-Replica"
_REQUEST_HEADERS = ("Accept", "traceparent", "tracestate")
_RESPONSE_HEADERS = ("Content-Type", "Retry-After")
_MAX_ID_LENGTH = 512
# A request in flight takes two sockets.
_OPEN_FILES = 65536
_LARGE_BODY = 2**20
_CONNECT_SECONDS = 10.0
# Uvicorn closes idle connections after 5 s; on a machine that stalls a client may notice it seconds
# late. A request sent at that moment would fail as if the replica had dropped the connection.
_KEEP_ALIVE_SECONDS = 1.0


async def serve_router(
    settings: GeneratorSettings, factory: ReplicaFactory, n_replicas: int, info: Info = dict
) -> None:
    """Start replicas and serve them until SIGTERM or SIGINT, or until no replica is left.

    The port is bound at once; ``/readyz`` reports when the first replica is ready, and requests
    wait for it. On SIGTERM and SIGINT the port is closed, requests in flight get up to
    ``router_grace`` seconds, then all replicas are stopped.

    Raises:
        ServiceError: The address cannot be bound, no replica could be started, or every replica
            has exhausted its restarts.
    """
    raise_file_limit(_OPEN_FILES)
    router = Router(settings, factory, n_replicas, info)
    await serve(router.application(), settings, stop=router.pool.failed)
    if router.pool.error is not None:
        raise router.pool.error


@asynccontextmanager
async def open_session() -> AsyncIterator[aiohttp.ClientSession]:
    """Open the HTTP client for all replicas, with one unlimited connection pool.

    A request has no time limit: the health check ejects a hung replica, and the client gives up.
    """
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        # The router reads the answers, so they must not be compressed.
        headers={"Accept-Encoding": "identity", "Content-Type": "application/json"},
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield session


class Router:
    """Forwards requests to replicas, which start and stop with its application.

    ``info`` returns what ``/info`` reports about the engines.
    """

    def __init__(
        self,
        settings: GeneratorSettings,
        factory: ReplicaFactory,
        n_replicas: int,
        info: Info = dict,
    ) -> None:
        self._settings = settings
        self._info = info
        self._started = int(time.time())
        self.pool = ReplicaPool(settings, factory, n_replicas)
        self._balancer, self._metrics = self.pool.balancer, self.pool.metrics

    def application(self) -> web.Application:
        access = Access(self._settings.hosts, self._settings.bearer, WITHOUT_TOKEN)
        app = make_application(access, errors=refused)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/info", self._show_info)
        app.router.add_get("/health", self._health)
        readiness = Readiness(self._not_ready, details=self._status)
        add_operations(app, readiness, self._metrics_text)
        app.cleanup_ctx.append(self._running)
        app.on_shutdown.append(self._drain)
        return app

    async def _running(self, _app: web.Application) -> AsyncIterator[None]:
        async with open_session() as session:
            self._session = self.pool.health.session = session
            self.pool.start()
            yield
            await self.pool.close()

    async def _drain(self, _app: web.Application) -> None:
        await self._balancer.drain(self._settings.router_grace)

    # OpenAI's API

    async def _models(self, _request: web.Request) -> web.Response:
        return models_response(self._settings.model, self._started)

    async def _complete(self, request: web.Request) -> web.Response:
        began = time.monotonic()
        name, outcome = request_id(request.headers), "cancelled"
        try:
            completion = await read_request(request, self._settings.model)
            response = await self._forward(request, completion, name)
            outcome = "answered" if response.status == 200 else f"http_{response.status}"
        except RequestError as error:
            outcome, response = f"http_{error.status}", error.response()
        finally:
            self._metrics.requests.labels(outcome).inc()
        if outcome == "answered":
            self._metrics.duration.observe(time.monotonic() - began)
        response.headers["X-Request-Id"] = name
        return response

    async def _forward(
        self, request: web.Request, completion: CompletionRequest, name: str
    ) -> web.Response:
        """Forward a request to the replica with the fewest in flight; returns the response.

        Raises:
            RequestError: 429 or 503, no replica takes the request; 502, the replica failed.
        """
        headers = {key: request.headers[key] for key in _REQUEST_HEADERS if key in request.headers}
        headers["X-Request-Id"] = name
        replica = await self._balancer.acquire()
        try:
            async with timeout(None) as evicted:
                replica.requests.add(evicted)
                try:
                    return await self._send(replica, request.path, completion, headers)
                finally:
                    replica.requests.discard(evicted)
        except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
            if not evicted.expired():
                replica.suspect = True
                raise _failure(replica, "connection", one_line(error)) from None
            if self._balancer.closed:
                raise stopping() from None
            raise _failure(replica, "ejected", "it was ejected") from None
        finally:
            self._balancer.release(replica)

    async def _send(
        self, replica: Replica, path: str, completion: CompletionRequest, headers: Mapping[str, str]
    ) -> web.Response:
        body = completion.body_for(replica.model)
        async with self._session.post(
            replica.url + path,
            data=io.BytesIO(body) if len(body) > _LARGE_BODY else body,
            headers=headers,
            allow_redirects=False,
        ) as answer:
            if answer.status >= 500:
                text = (await answer.content.read(300)).decode("utf-8", "replace")
                message = f"HTTP {answer.status}: {' '.join(text.split())}"
                raise _failure(replica, "server_error", message)
            content = await answer.read()
        if answer.status == 200:
            self._check(replica, content)
        kept = {name: answer.headers[name] for name in _RESPONSE_HEADERS if name in answer.headers}
        kept[REPLICA_HEADER] = replica.name
        return web.Response(status=answer.status, body=content, headers=kept)

    def _check(self, replica: Replica, content: bytes) -> None:
        if is_aborted(content):
            raise _failure(replica, "abort", "it aborted the request")
        usage = find_usage(content)
        if usage is None or usage.completion_tokens:
            replica.record_token()
        if usage is not None:
            self._metrics.tokens.labels("prompt").inc(usage.prompt_tokens)
            self._metrics.tokens.labels("completion").inc(usage.completion_tokens)

    # Operations endpoints

    def _not_ready(self) -> str | None:
        if self._balancer.closed:
            return "the generator is shutting down"
        return None if self.pool.ready else "no replica is ready"

    async def _health(self, _request: web.Request) -> web.Response:
        """``/health`` compatible with vLLM: an empty body, 200 or 503."""
        return web.Response(status=503 if self._not_ready() else 200)

    def _status(self) -> dict[str, object]:
        """Details for ``/readyz``."""
        model, queued = self._settings.model, self._balancer.queued
        return {"model": model, "queued": queued, "replicas": self.pool.status()}

    async def _show_info(self, _request: web.Request) -> web.Response:
        return web.json_response({"backend": self._settings.backend, **self._info()})

    async def _metrics_text(self) -> bytes:
        urls = {replica.rank: replica.url for replica in self.pool.replicas}
        return self._metrics.text() + await scrape(self._session, urls)


def _failure(replica: Replica, reason: str, message: str) -> RequestError:
    """The error of a request that its replica did not answer; requests a probe of it."""
    log.warning("request failed", replica=replica.name, reason=reason, error=message)
    replica.probe_wanted.set()
    return RequestError(502, f"{replica.name}: {message}", code=f"replica_{reason}")


def request_id(headers: Mapping[str, str]) -> str:
    """Return the client's ``X-Request-Id`` if it is a valid header value, else a new id."""
    name = headers.get("X-Request-Id", "")
    usable = name.isascii() and name.isprintable() and 0 < len(name) <= _MAX_ID_LENGTH
    return name if usable else uuid.uuid4().hex
