"""OpenAI-compatible API, as far as all backends share it: errors, and the JSON of requests."""

from collections.abc import Mapping

from aiohttp import web

from shared.foreign_json import JsonError, decode_json
from shared.service.bodies import BodyTooLargeError
from shared.text import shorten_end

# The metrics are counters of requests and of the engines, without anything of a request.
WITHOUT_TOKEN = frozenset({"/metrics"})
MAX_LIST = 4096
"""Messages, parts of a message, and members of other lists of a request but token ids."""

_LONGEST_NAME = 200
_ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_ERROR_CODES = {401: "invalid_api_key"}


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


def as_request_error(error: RequestError | BodyTooLargeError) -> RequestError:
    """Return a 413 for a body that is too large."""
    if isinstance(error, BodyTooLargeError):
        return RequestError(413, str(error), code="too_large")
    return error


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


def unknown_model(name: str) -> RequestError:
    message = f"The model `{shorten_end(name, _LONGEST_NAME)}` does not exist."
    return RequestError(404, message, code="model_not_found")
