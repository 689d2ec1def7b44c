"""OpenAI-compatible server that replays recorded completions instead of running a model."""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from services.generator.backends.replay.recordings import Recordings, estimate_tokens, sample_of
from services.generator.protocol import (
    WITHOUT_TOKEN,
    Answer,
    ChatRequest,
    CompletionRequest,
    RequestError,
    TextRequest,
    as_request_error,
    parse_request,
    refused,
    unknown_model,
)
from services.generator.settings import PREFIX, GeneratorSettings
from shared.completions import read_completions
from shared.errors import ConfigError
from shared.schemas import Problem
from shared.service.access import Access
from shared.service.bodies import BodyTooLargeError, read_body
from shared.service.health import Readiness
from shared.service.logs import get_logger
from shared.service.server import add_operations, make_application, serve

log = get_logger(__name__)
_MAX_BODY, _LARGE = 16 * 2**20, 64 * 2**10
_CHUNK_CHARACTERS = 16


def build_app(settings: GeneratorSettings) -> web.Application:
    """Load the recordings and build the application.

    Raises:
        PlumblineError: A setting or a file cannot be used.
    """
    if not settings.replay_completions:
        raise ConfigError(f"{PREFIX}REPLAY_COMPLETIONS must name the JSONL of recorded completions")
    problems = _problems(settings)
    recordings = Recordings(read_completions(settings.replay_completions), problems)
    log.info("replaying", completions=len(recordings), problems=len(problems))
    return ReplayServer(settings, recordings).application()


def _problems(settings: GeneratorSettings) -> list[Problem]:
    if not settings.replay_data:
        return []
    # Imported here because recordings found by the request id need no data, and pyarrow takes long.
    from shared.datasets import read_datasets

    return read_datasets(list(settings.replay_data))


async def serve_replay(settings: GeneratorSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        PlumblineError: As :func:`build_app`, or the address cannot be bound.
    """
    await serve(build_app(settings), settings)


class ReplayMetrics:
    """Prometheus metrics in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "plumbline_generator_requests_total",
            "Completion requests by outcome: answered, http_<status> or cancelled.",
            ["outcome"],
            registry=self.registry,
        )
        self.tokens = Counter(
            "plumbline_generator_tokens_total",
            "Tokens of answered requests.",
            ["kind"],
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "plumbline_generator_requests_in_flight",
            "Completion requests in flight.",
            registry=self.registry,
        )


class ReplayServer:
    def __init__(self, settings: GeneratorSettings, recordings: Recordings) -> None:
        self._settings = settings
        self._recordings = recordings
        self._metrics = ReplayMetrics()
        self._started = int(time.time())

    def application(self) -> web.Application:
        settings = self._settings
        access = Access(settings.hosts, settings.bearer, without_token=WITHOUT_TOKEN)
        app = make_application(access, errors=refused)
        app.router.add_post("/v1/chat/completions", self._counted(ChatRequest))
        app.router.add_post("/v1/completions", self._counted(TextRequest))
        app.router.add_get("/v1/models", self._models)
        # The recordings are loaded before the port is bound, so a server that answers is ready.
        readiness = Readiness(details=lambda: {"completions": len(self._recordings)})
        add_operations(app, readiness, self._metrics.registry)
        return app

    async def _models(self, _request: web.Request) -> web.Response:
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
                    response = await self._respond(request, kind)
                    outcome = "answered"
                    return response
                except (RequestError, BodyTooLargeError) as error:
                    refusal = as_request_error(error)
                    outcome = f"http_{refusal.status}"
                    return refusal.response()
                finally:
                    self._metrics.requests.labels(outcome).inc()

        return handle

    async def _respond(
        self, request: web.Request, kind: type[CompletionRequest]
    ) -> web.StreamResponse:
        body = await read_body(request, bytes, limit=_MAX_BODY)
        request_id = request.headers.get("X-Request-Id", "")
        find = partial(self._recorded, kind, body, request_id)
        if len(body) < _LARGE and sample_of(request_id):
            parsed, answer = find()
        else:  # it may search a text for many prompts
            parsed, answer = await asyncio.to_thread(find)
        seconds = self._settings.replay_latency + self._settings.replay_time_scale * max(
            choice.gen_time for choice in answer.choices
        )
        response: web.StreamResponse
        if parsed.stream:
            response = await _send_stream(request, answer, seconds, parsed.include_usage)
        else:
            await asyncio.sleep(seconds)
            response = web.json_response(answer.body())
        self._metrics.tokens.labels("prompt").inc(answer.prompt_tokens)
        self._metrics.tokens.labels("completion").inc(answer.completion_tokens)
        return response

    def _recorded(
        self, kind: type[CompletionRequest], body: bytes, request_id: str
    ) -> tuple[CompletionRequest, Answer]:
        parsed = parse_request(kind, body)
        return parsed, self._answer(parsed, request_id)

    def _answer(self, request: CompletionRequest, request_id: str) -> Answer:
        if request.model is not None and request.model != self._settings.model:
            raise unknown_model(request.model)
        chat = isinstance(request, ChatRequest)
        return Answer(
            id=("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex,
            created=int(time.time()),
            model=self._settings.model,
            chat=chat,
            choices=self._recordings.choices(request, request_id),
            prompt_tokens=estimate_tokens(request.prompt_text),
        )


async def _send_stream(
    request: web.Request, answer: Answer, seconds: float, include_usage: bool
) -> web.StreamResponse:
    """Stream the answer over ``seconds``."""
    chunks = list(answer.chunks(_CHUNK_CHARACTERS, include_usage=include_usage))
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
    )
    await response.prepare(request)
    for chunk in chunks:
        await asyncio.sleep(seconds / len(chunks))
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response
