"""OpenAI-compatible server that replays recorded completions instead of running a model.

It answers ``/v1/chat/completions`` for the sample that ``X-Request-Id`` names, in one piece.
"""

import asyncio
import time
import uuid
from typing import Annotated

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.generator.backends.replay.recordings import Recordings
from services.generator.protocol import (
    MAX_LIST,
    WITHOUT_TOKEN,
    RequestError,
    as_request_error,
    decode_body,
    refused,
    unknown_model,
)
from services.generator.settings import PREFIX, GeneratorSettings
from shared.completions import RecordedCompletion, read_completions
from shared.errors import ConfigError
from shared.schemas import describe
from shared.service.access import Access
from shared.service.bodies import BodyTooLargeError, read_body
from shared.service.logs import get_logger
from shared.service.server import Readiness, add_operations, make_application, serve
from shared.statuses import TokenSource

log = get_logger(__name__)
_MAX_BODY = 16 * 2**20
_CHARACTERS_PER_TOKEN = 4


class _Lenient(BaseModel):
    # Clients send many sampling parameters; those without an effect here are ignored.
    model_config = ConfigDict(frozen=True, extra="ignore")


# Of a list the first wrong member alone is reported.
_FEW = Field(max_length=MAX_LIST, fail_fast=True)


class _Part(_Lenient):
    text: str = ""


class Message(_Lenient):
    role: str
    content: str | Annotated[list[_Part], _FEW] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ChatRequest(_Lenient):
    """Body of a request, as far as it has an effect."""

    messages: Annotated[list[Message], _FEW] = Field(min_length=1)
    model: str | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stream: bool = False

    @classmethod
    def parse(cls, body: bytes) -> "ChatRequest":
        """Parse a body.

        Raises:
            RequestError: 400, it is not a valid request, or asks for a stream.
        """
        try:
            request = cls.model_validate(decode_body(body))
        except ValidationError as error:
            raise RequestError(400, describe(error)) from None
        if request.stream:
            raise RequestError(400, "recorded completions are not streamed")
        return request


def build_app(settings: GeneratorSettings) -> web.Application:
    """Load the recordings and build the application.

    Raises:
        PlumblineError: A setting or a file cannot be used.
    """
    if not settings.replay_completions:
        raise ConfigError(f"{PREFIX}REPLAY_COMPLETIONS must name the JSONL of recorded completions")
    recordings = Recordings(read_completions(settings.replay_completions))
    log.info("replaying", completions=len(recordings))
    return ReplayServer(settings, recordings).application()


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
        app.router.add_post("/v1/chat/completions", self._complete)
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

    async def _complete(self, request: web.Request) -> web.Response:
        outcome = "cancelled"
        with self._metrics.in_flight.track_inprogress():
            try:
                body = await read_body(request, ChatRequest.parse, limit=_MAX_BODY)
                response = await self._answer(body, request.headers.get("X-Request-Id", ""))
                outcome = "answered"
                return response
            except (RequestError, BodyTooLargeError) as error:
                refusal = as_request_error(error)
                outcome = f"http_{refusal.status}"
                return refusal.response()
            finally:
                self._metrics.requests.labels(outcome).inc()

    async def _answer(self, request: ChatRequest, request_id: str) -> web.Response:
        if request.model is not None and request.model != self._settings.model:
            raise unknown_model(request.model)
        recorded = self._recordings.find(request_id)
        await asyncio.sleep(self._settings.replay_latency)
        limit = request.max_completion_tokens or request.max_tokens
        text, reason, tokens, source = _cut(recorded, limit)
        prompt_tokens = _estimate("".join(one.text for one in request.messages))
        self._metrics.tokens.labels("prompt").inc(prompt_tokens)
        self._metrics.tokens.labels("completion").inc(tokens)
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
            # Not OpenAI's; where no engine counted.
            **({"completion_tokens_from": source} if source else {}),
        }
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        return web.json_response(
            {
                "id": f"chatcmpl-{uuid.uuid4().hex}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": self._settings.model,
                "choices": [choice],
                "usage": usage,
            }
        )


def _cut(recorded: RecordedCompletion, limit: int | None) -> tuple[str, str, int, str | None]:
    """The text up to a limit of tokens, its finish reason, its tokens and who counted them."""
    text, tokens, source = (
        recorded.completion,
        recorded.output_tokens,
        recorded.output_tokens_from,
    )
    if tokens is None:
        tokens, source = _estimate(text), TokenSource.ESTIMATE
    reason = recorded.finish_reason or "stop"
    if limit is not None and limit < tokens:
        text, tokens, reason = text[: int(len(text) * limit / tokens)], limit, "length"
    return text, reason, tokens, source


def _estimate(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)
