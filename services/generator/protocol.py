"""OpenAI-compatible API, as far as all backends share it: errors, and the JSON of requests."""

from collections.abc import Callable, Mapping
from typing import TypeVar

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

T = TypeVar("T")


class RequestError(Exception):
    """Rejects a request, with an error body in OpenAI's format."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code
        self.retry_after = retry_after

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


async def read_request(request: web.Request, parse: Callable[[bytes], T]) -> T:
    """Read and parse a request's body.

    Raises:
        RequestError: 413, the body is too large; or what ``parse`` raises.
    """
    try:
        return await read_body(request, parse, limit=_MAX_BODY)
    except BodyTooLargeError as error:
        raise RequestError(413, str(error), code="too_large") from None


def decode_body(body: bytes) -> object:
    """Decode the JSON of a request.

    Raises:
        RequestError: 400, the body is not JSON, or holds more than a request may.
    """
    try:
        return decode_json(body, finite=True)
    except JsonError as error:
        message = f"the request body is not JSON that can be used: {error}"
        raise RequestError(400, message, code="invalid_json") from None


def models_response(name: str, created: int) -> web.Response:
    """The answer to ``GET /v1/models`` of a server of one model, started at ``created``."""
    model = {"id": name, "object": "model", "created": created, "owned_by": "plumbline"}
    return web.json_response({"object": "list", "data": [model]})


def unknown_model(name: str) -> RequestError:
    message = f"The model `{shorten_end(name, _LONGEST_NAME)}` does not exist."
    return RequestError(404, message, code="model_not_found")
