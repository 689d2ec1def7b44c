"""The router's HTTP face."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from services.generator.protocol import RequestError
from services.generator.router.access import Access, request_id
from services.generator.router.asked import Asked, read_asked
from services.generator.router.bodies import Bodies
from services.generator.router.client_stream import ClientStream
from services.generator.router.draining import drain
from services.generator.router.failures import AttemptError, ClientGoneError
from services.generator.router.parts import Parts, make_parts
from services.generator.router.replica import ReplicaFactory
from services.generator.router.scrape import scrape
from services.generator.router.state import report
from services.generator.settings import GeneratorSettings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Info = Callable[[], Mapping[str, object]]


def build_app(
    settings: GeneratorSettings,
    factory: ReplicaFactory,
    n_replicas: int,
    *,
    info: Info = dict,
    failed: asyncio.Event | None = None,
) -> web.Application:
    """Make the application; the replicas are started with it and end with it.

    Args:
        settings: ``model`` is the name under which the model is served; where it is not set, that
            is the engines' own.
        factory: Starts the replicas.
        n_replicas: How many there are to be.
        info: What ``/info`` says of the engines beside the model's name.
        failed: Set when no replica is left or could be started; see :func:`serve_router`.
    """
    parts = make_parts(settings, factory, n_replicas, failed or asyncio.Event())
    return RouterServer(settings, parts, info).application()


class RouterServer:
    def __init__(self, settings: GeneratorSettings, parts: Parts, info: Info) -> None:
        self._settings = settings
        self._parts = parts
        self._info = info
        self._access = Access(settings.api_key)
        self._bodies = Bodies(largest=settings.router_max_body, together=settings.router_max_held)
        self._started = int(time.time())

    def application(self) -> web.Application:
        app = web.Application(
            client_max_size=self._settings.router_max_body + 1, middlewares=[_errors_as_json]
        )
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/info", self._tell)
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._expose)
        app.cleanup_ctx.append(self._running)
        app.on_shutdown.append(self._drain)
        return app

    async def _running(self, _app: web.Application) -> AsyncIterator[None]:
        self._parts.connections.open()
        self._parts.supervisor.start()
        yield
        await self._parts.supervisor.close()
        await self._parts.connections.close()

    async def _drain(self, _app: web.Application) -> None:
        await drain(self._parts.balancer, self._settings.router_grace)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        began = time.monotonic()
        name, outcome = request_id(request.headers), "cancelled"
        client = ClientStream(request)
        try:
            self._access.check(request.headers)
            async with self._bodies.read(request) as body:
                asked = self._asked(request.path, body)
                response = await self._parts.forwarder.forward(request, asked, name, client)
            outcome = "answered" if response.status == 200 else f"http_{response.status}"
        except RequestError as error:
            outcome, response = f"http_{error.status}", error.response()
        except AttemptError:
            outcome, response = "broken_stream", client.response
        except ClientGoneError:
            response = client.drop()
        finally:
            self._parts.metrics.requests.labels(outcome).inc()
        if outcome == "answered":
            self._parts.metrics.duration.observe(time.monotonic() - began)
        if not client.started:
            response.headers["X-Request-Id"] = name
            if self._parts.balancer.closed:
                response.force_close()  # so that the next request finds another server
        return response

    def _asked(self, path: str, body: bytes) -> Asked:
        asked = read_asked(path, body, self._settings.router_default_output)
        served = self._served
        if asked.model is not None and served and asked.model != served:
            message = f"The model `{asked.model}` does not exist."
            raise RequestError(404, message, code="model_not_found")
        return asked

    @property
    def _served(self) -> str:
        """The model's name for clients; empty as long as it is not known."""
        if "model" in self._settings.model_fields_set:
            return self._settings.model
        engines = (keeper.engine for keeper in self._parts.supervisor.keepers)
        return next((engine.model for engine in engines if engine and engine.model), "")

    async def _models(self, request: web.Request) -> web.Response:
        self._access.check(request.headers)
        if not self._served:
            raise self._parts.balancer.refusal()
        model = {
            "id": self._served,
            "object": "model",
            "created": self._started,
            "owned_by": "plumbline",
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _tell(self, request: web.Request) -> web.Response:
        self._access.check(request.headers)
        return web.json_response({"backend": self._settings.backend, **self._info()})

    async def _alive(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _ready(self, _request: web.Request) -> web.Response:
        shown = report(self._parts.supervisor, self._parts.balancer, self._served)
        return web.json_response(shown, status=200 if shown["status"] == "ok" else 503)

    async def _expose(self, _request: web.Request) -> web.Response:
        engines = [keeper.engine for keeper in self._parts.supervisor.keepers if keeper.engine]
        theirs = await scrape(
            self._parts.connections, engines, self._settings.router_scrape_timeout
        )
        body = self._parts.metrics.text() + theirs.encode()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestError as error:
        return error.response()
    except web.HTTPException as error:
        if error.status < 400:
            raise
        message = f"{request.method} {request.path}: {error.reason}"
        response = RequestError(error.status, message).response()
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
