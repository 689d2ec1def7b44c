"""OpenAI-compatible server that replays recorded completions instead of running a model.

It answers ``/v1/chat/completions`` for the sample that ``X-Request-Id`` names, in one piece.
"""

import asyncio
import time
import uuid
from collections.abc import Mapping

from aiohttp import web

from services.generator.protocol import (
    WITHOUT_TOKEN,
    CompletionRequest,
    RequestError,
    models_response,
    read_request,
    refused,
)
from services.generator.router.metrics import RouterMetrics
from services.generator.settings import PREFIX, GeneratorSettings
from shared.completions import RecordedCompletion, read_completions
from shared.errors import ConfigError, DataError
from shared.schemas import SampleId
from shared.service.access import Access
from shared.service.logs import get_logger
from shared.service.server import Readiness, add_operations, make_application
from shared.statuses import TokenSource

log = get_logger(__name__)
_CHARACTERS_PER_TOKEN = 4


def build_app(settings: GeneratorSettings) -> web.Application:
    """Load the recordings and build the application.

    Raises:
        PlumblineError: A setting or a file cannot be used.
    """
    server = _Server(settings)
    details = {"completions": len(server.recordings)}
    log.info("replaying", **details)
    access = Access(settings.hosts, settings.bearer, without_token=WITHOUT_TOKEN)
    app = make_application(access, errors=refused)
    app.router.add_post("/v1/chat/completions", server.complete)
    app.router.add_get("/v1/models", server.models)
    # The recordings are loaded before the port is bound, so a server that answers is ready.
    add_operations(app, Readiness(details=lambda: details), server.metrics.registry)
    return app


class _Server:
    """The recorded completions by sample, and the handlers of requests for them."""

    def __init__(self, settings: GeneratorSettings) -> None:
        self._settings = settings
        self._started = int(time.time())
        self.metrics = RouterMetrics()
        self._in_flight = self.metrics.in_flight.labels("recorded")
        self.recordings: dict[tuple[str | None, str, int], RecordedCompletion] = {}
        if not settings.replay_completions:
            name = f"{PREFIX}REPLAY_COMPLETIONS"
            raise ConfigError(f"{name} must name the JSONL of recorded completions")
        for recorded in read_completions(settings.replay_completions):
            key = (recorded.dataset or None, recorded.problem_id, recorded.sample_index)
            first = self.recordings.setdefault(key, recorded)
            if first.completion != recorded.completion:
                raise DataError(
                    f"two different completions are recorded for problem {recorded.problem_id!r}, "
                    f"sample {recorded.sample_index}; number them with sample_index"
                )

    async def models(self, _request: web.Request) -> web.Response:
        return models_response(self._settings.model, self._started)

    async def complete(self, request: web.Request) -> web.Response:
        outcome = "cancelled"
        with self._in_flight.track_inprogress():
            try:
                chat = await read_request(request, self._settings.model)
                response = await self._answer(chat, request.headers.get("X-Request-Id", ""))
                outcome = "answered"
                return response
            except RequestError as error:
                outcome = f"http_{error.status}"
                return error.response()
            finally:
                self.metrics.requests.labels(outcome).inc()

    async def _answer(self, chat: CompletionRequest, request_id: str) -> web.Response:
        recorded = self._find(request_id)
        await asyncio.sleep(self._settings.replay_latency)
        text, reason, tokens, source = _cut(recorded, _limit(chat.document))
        prompt_tokens = _estimate(_prompt(chat.document))
        self.metrics.tokens.labels("prompt").inc(prompt_tokens)
        self.metrics.tokens.labels("completion").inc(tokens)
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

    def _find(self, request_id: str) -> RecordedCompletion:
        """The completion of the sample that an ``X-Request-Id`` names.

        Raises:
            RequestError: 404, it names no sample, or one without a recorded completion.
        """
        try:
            sample = SampleId.parse("/".join(request_id.rsplit("/", 3)[1:]))
        except ValueError:
            form = "<run>/<dataset>/<problem_id>/<sample_index>"
            message = f"cannot determine the sample: X-Request-Id is not {form}"
            raise RequestError(404, message, code="sample_unknown") from None
        # A completion recorded without a data set answers for any.
        for dataset in (sample.dataset, None):
            key = (dataset, sample.problem_id, sample.sample_index)
            if recorded := self.recordings.get(key):
                return recorded
        message = f"no completion is recorded for the sample {sample.key}"
        raise RequestError(404, message, code="completion_not_recorded")


def _limit(request: Mapping[str, object]) -> int | None:
    limits = (request.get(name) for name in ("max_completion_tokens", "max_tokens"))
    return next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)


def _prompt(request: Mapping[str, object]) -> str:
    """The text of the messages."""
    messages = request.get("messages")
    listed = messages if isinstance(messages, list) else []
    texts = [message.get("content") for message in listed if isinstance(message, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _cut(recorded: RecordedCompletion, limit: int | None) -> tuple[str, str, int, str | None]:
    """The text up to a limit of tokens, its finish reason, its tokens and who counted them."""
    text, reason = recorded.completion, recorded.finish_reason or "stop"
    tokens, source = recorded.output_tokens, recorded.output_tokens_from
    if tokens is None:
        tokens, source = _estimate(text), TokenSource.ESTIMATE
    if limit is not None and limit < tokens:
        text, tokens, reason = text[: int(len(text) * limit / tokens)], limit, "length"
    return text, reason, tokens, source


def _estimate(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)
