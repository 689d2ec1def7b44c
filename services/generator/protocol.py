"""OpenAI-compatible API: errors, the JSON of requests, and of answers what the router needs."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from shared.foreign_json import JsonError, decode_json
from shared.service.bodies import BodyTooLargeError, read_body
from shared.text import shorten_end

# The metrics are counters of requests and of the engines, without anything of a request.
WITHOUT_TOKEN = frozenset({"/metrics"})

# Bytes of a request. A prompt of a million tokens has about 4 MiB.
_MAX_BODY = 16 * 2**20
_LONGEST_NAME = 200
_ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_ERROR_CODES = {401: "invalid_api_key"}
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_PROMPT_TOKENS = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,15})')
_COMPLETION_TOKENS = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,15})')


@dataclass(eq=False)
class RequestError(Exception):
    """Rejects a request, with an error body in OpenAI's format."""

    status: int
    message: str
    code: str | None = None
    retry_after: float | None = None

    def response(self) -> web.Response:
        default = "invalid_request_error" if self.status < 500 else "server_error"
        error = {
            "message": self.message,
            "type": _ERROR_TYPES.get(self.status, default),
            "code": self.code,
        }
        headers = {} if self.retry_after is None else {"Retry-After": f"{self.retry_after:g}"}
        return web.json_response({"error": error}, status=self.status, headers=headers)


def refused(status: int, message: str, headers: Mapping[str, str]) -> web.Response:
    """Response to a request that the access rules refuse."""
    response = RequestError(status, message, code=_ERROR_CODES.get(status)).response()
    response.headers.update(headers)
    return response


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request of a completion; ``document`` is the decoded body."""

    body: bytes
    document: Mapping[str, object]

    @property
    def model(self) -> str | None:
        name = self.document.get("model")
        return name if isinstance(name, str) else None

    def body_for(self, model: str) -> bytes:
        """The body with the model's name replaced by ``model``; unchanged if it names none."""
        if self.model in (None, model):
            return self.body
        return json.dumps({**self.document, "model": model}).encode()

    @classmethod
    def parse(cls, body: bytes) -> "CompletionRequest":
        """Parse a request body. The engine validates all other fields.

        Raises:
            RequestError: 400, the body is not a JSON object, or asks for a stream.
        """
        try:
            document = decode_json(body, finite=True)
        except JsonError as error:
            message = f"the request body is not JSON that can be used: {error}"
            raise RequestError(400, message, code="invalid_json") from None
        if not isinstance(document, dict):
            raise RequestError(400, "the request body is not a JSON object", code="invalid_json")
        if document.get("stream") is True:
            raise RequestError(400, "answers are not streamed; leave out stream")
        return cls(body, document)


async def read_request(request: web.Request, model: str) -> CompletionRequest:
    """Read and parse the body of a request to the server of ``model``.

    Raises:
        RequestError: 413, the body is too large; 404, it names another model; or as
            :meth:`CompletionRequest.parse`.
    """
    try:
        parsed = await read_body(request, CompletionRequest.parse, limit=_MAX_BODY)
    except BodyTooLargeError as error:
        raise RequestError(413, str(error), code="too_large") from None
    if parsed.model not in (None, model):
        message = f"The model `{shorten_end(str(parsed.model), _LONGEST_NAME)}` does not exist."
        raise RequestError(404, message, code="model_not_found")
    return parsed


def models_response(name: str, created: int) -> web.Response:
    """The answer to ``GET /v1/models`` of a server of one model, started at ``created``."""
    model = {"id": name, "object": "model", "created": created, "owned_by": "plumbline"}
    return web.json_response({"object": "list", "data": [model]})


# Answers are searched as bytes, with as little decoding as possible.


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int


def find_usage(body: bytes) -> Usage | None:
    """Find the last ``usage`` in the bytes, which is the valid one."""
    end = len(body)
    while (start := body.rfind(b'"usage"', 0, end)) >= 0:
        if _USAGE.match(body, start):
            prompt, completion = (
                pattern.search(body, start) for pattern in (_PROMPT_TOKENS, _COMPLETION_TOKENS)
            )
            return Usage(int(prompt[1]) if prompt else 0, int(completion[1]) if completion else 0)
        end = start
    return None


def is_aborted(body: bytes) -> bool:
    """Whether any choice ends with ``finish_reason: "abort"``: the engine dropped the request."""
    # Quotes in a text are escaped, so this skips nearly every body.
    if b'"abort"' not in body:
        return False
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    choices = document.get("choices") if isinstance(document, dict) else None
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") == "abort" for choice in choices
    )
