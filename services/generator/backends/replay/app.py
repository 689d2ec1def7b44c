"""The OpenAI-compatible server of recorded completions."""

import asyncio
import hashlib
import hmac
import time
import uuid
from collections.abc import Awaitable, Callable

from aiohttp import web

from services.generator.backends.replay import sending
from services.generator.backends.replay.failures import FailurePlan, parse_failures
from services.generator.backends.replay.recordings import Recordings, estimate_tokens
from services.generator.metrics import Metrics
from services.generator.protocol import (
    Answer,
    ChatRequest,
    CompletionRequest,
    RequestError,
    TextRequest,
    parse_request,
)
from services.generator.settings import PREFIX, GeneratorSettings
from shared.completions import read_completions
from shared.datasets import read_datasets
from shared.errors import ConfigError
from shared.service.logs import get_logger
from shared.service.server import serve

log = get_logger(__name__)
_MAX_BODY = 64 * 1024 * 1024


def build_app(settings: GeneratorSettings) -> web.Application:
    """Load the recordings and make the application.

    Raises:
        PlumblineError: A setting or a file that cannot be used.
    """
    if not settings.replay_completions:
        raise ConfigError(f"{PREFIX}REPLAY_COMPLETIONS must name the JSONL of recorded completions")
    plan = FailurePlan(
        parse_failures(settings.replay_failures),
        error_rate=settings.replay_error_rate,
        seed=settings.replay_seed,
    )
    problems = read_datasets(list(settings.replay_data)) if settings.replay_data else []
    recordings = Recordings(read_completions(settings.replay_completions), problems)
    log.info("replaying", completions=len(recordings), problems=len(problems))
    return ReplayServer(settings, recordings, plan).application()


async def serve_replay(settings: GeneratorSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        PlumblineError: As :func:`build_app`, or the address cannot be bound.
    """
    await serve(build_app(settings), host=settings.host, port=settings.port)


class ReplayServer:
    def __init__(
        self, settings: GeneratorSettings, recordings: Recordings, plan: FailurePlan
    ) -> None:
        self._settings = settings
        self._recordings = recordings
        self._plan = plan
        self._metrics = Metrics()
        self._stopping = asyncio.Event()
        self._started = int(time.time())

    def application(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_post("/v1/chat/completions", self._counted(ChatRequest))
        app.router.add_post("/v1/completions", self._counted(TextRequest))
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/healthz", self._alive)
        # The recordings are loaded before the port is bound, so who answers can work.
        app.router.add_get("/readyz", self._alive)
        app.router.add_get("/metrics", self._metrics.expose)
        app.on_shutdown.append(self._stop)
        return app

    async def _stop(self, _app: web.Application) -> None:
        self._stopping.set()

    async def _alive(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "completions": len(self._recordings)})

    async def _models(self, request: web.Request) -> web.Response:
        try:
            self._authorize(request)
        except RequestError as error:
            return error.response()
        model = {
            "id": self._settings.model,
            "object": "model",
            "created": self._started,
            "owned_by": "plumbline",
        }
        return web.json_response({"object": "list", "data": [model]})

    def _counted(
        self, kind: type[CompletionRequest]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            outcome = "cancelled"
            with self._metrics.in_flight.track_inprogress():
                try:
                    outcome, response = await self._respond(request, kind)
                    return response
                except RequestError as error:
                    outcome = f"http_{error.status}"
                    return error.response()
                finally:
                    self._metrics.requests.labels(outcome).inc()

        return handle

    async def _respond(
        self, request: web.Request, kind: type[CompletionRequest]
    ) -> tuple[str, web.StreamResponse]:
        body = await request.read()
        request_id = request.headers.get("X-Request-Id", "")
        failure = self._plan.next(request_id or hashlib.sha256(body).hexdigest())
        if failure.status is not None:
            message = f"injected failure: HTTP {failure.status}"
            raise RequestError(failure.status, message, retry_after=failure.retry_after)
        if instead := sending.INSTEAD_OF_AN_ANSWER.get(failure.name):
            # A stop ends a request that would else hang for ever.
            return failure.name, await instead(request, self._stopping)
        self._authorize(request)
        asked = parse_request(kind, body)
        answer = self._answer(asked, request_id)
        seconds = self._settings.replay_latency + self._settings.replay_time_scale * max(
            choice.gen_time for choice in answer.choices
        )
        if failure.name == "abort":
            answer = sending.aborted(answer)
        cut = failure.name == "truncated"
        if asked.stream:
            response = await sending.send_stream(
                request, answer, seconds=seconds, include_usage=asked.include_usage, cut=cut
            )
        else:
            response = await sending.send_body(request, answer, seconds=seconds, cut=cut)
        self._metrics.tokens.labels("prompt").inc(answer.prompt_tokens)
        self._metrics.tokens.labels("completion").inc(answer.completion_tokens)
        return "answered" if failure.name == "ok" else failure.name, response

    def _authorize(self, request: web.Request) -> None:
        if self._settings.api_key is None:
            return
        expected = f"Bearer {self._settings.api_key.get_secret_value()}"
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(
            given.encode("utf-8", "surrogateescape"), expected.encode("utf-8", "surrogateescape")
        ):
            raise RequestError(401, "Incorrect API key provided", code="invalid_api_key")

    def _answer(self, asked: CompletionRequest, request_id: str) -> Answer:
        if asked.model is not None and asked.model != self._settings.model:
            message = f"The model `{asked.model}` does not exist."
            raise RequestError(404, message, code="model_not_found")
        chat = isinstance(asked, ChatRequest)
        return Answer(
            id=("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex,
            created=int(time.time()),
            model=self._settings.model,
            chat=chat,
            choices=self._recordings.choices(asked, request_id),
            prompt_tokens=estimate_tokens(asked.prompt_text),
        )
