"""Responses of OpenAI-compatible servers: completions, error classification, models, ``/info``."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Annotated

import aiohttp
from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from shared.errors import ServiceError, UnavailableError
from shared.foreign_json import decode_json
from shared.redaction import redact
from shared.run_record import JsonObject
from shared.schemas import describe, without_surrogates
from shared.service.answers import Answers, AnswerTooLargeError
from shared.statuses import TokenSource
from shared.text import shorten_end

# OpenAI's API has no error code for a prompt that is too long, so error messages are matched.
# vLLM: "maximum context length is 8 tokens. However, you requested", "longer than the maximum model
# length of 8"; SGLang: "longer than the model's context length (8 tokens)", "exceeds the model's
# maximum context length of 8 tokens", "exceeds the maximum allowed length (8 tokens)"; the rest is
# from other servers. vLLM's "max_tokens=9 cannot be greater than max_model_len" must not match: it
# is a config error that affects every sample.
_TOO_LONG = re.compile(
    r"context[ _](length|window)|max(imum)? (model |input |prompt |context |allowed )*len(gth)?\b"
    r"|(exceed|longer than)\w*\b.*\bmax_model_len|(prompt|input|messages?)\b.* too long",
    re.IGNORECASE,
)
_TOO_LONG_STATUSES = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_UNAVAILABLE_STATUSES = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_LONGEST_MESSAGE = 500
_READ_OF_MESSAGE = 4 * _LONGEST_MESSAGE
# Pages about a server, of which there are few at once.
_SMALL = Answers(max_answer=2**20, max_held=2**26)


class RetryableError(Exception):
    """A failure that is worth a retry."""


class NoResponseError(RetryableError):
    """The server was not reachable, or did not answer in time."""


class UnreachableError(NoResponseError):
    """The server could not be connected to, so it has seen nothing of the request."""


class ServerBusyError(Exception):
    """The server is healthy and rejects the request for now (backpressure).

    ``retry_after`` is its Retry-After in seconds, if it sent one.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class RejectedError(Exception):
    """The server rejects this request permanently; a retry is useless."""


# Chat completions


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


def _known_source(value: object) -> TokenSource | None:
    return next((one for one in TokenSource if one == value), None)


class _Usage(BaseModel):
    """OpenAI's object; ``completion_tokens_from`` is the replay backend's."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    completion_tokens_from: Annotated[TokenSource | None, BeforeValidator(_known_source)] = None


class _Body(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """The first choice of a chat completion."""

    text: str
    finish_reason: str | None
    prompt_tokens: int | None
    output_tokens: int | None
    output_tokens_from: TokenSource | None = None


def read_completion(status: int, headers: Mapping[str, str], body: bytes) -> Completion:
    """Parse the response to a chat completion request.

    Raises:
        ServerBusyError: 429, or 503 with a Retry-After.
        RetryableError: 408, other 5xx, an aborted completion, or an unusable body.
        RejectedError: Any other status than 200.
    """
    if status != HTTPStatus.OK:
        raise _error(status, headers, error_message(body))
    try:
        answer = _Body.model_validate(load_json(body))
    except ValidationError as error:
        raise RetryableError(f"bad_answer: {describe(error)}; {error_message(body)}") from None
    except ValueError:
        raise RetryableError(f"bad_answer: not JSON: {error_message(body)}") from None
    choice = answer.choices[0]
    if choice.finish_reason == "abort":
        raise RetryableError("abort: the server aborted the request")
    usage = answer.usage or _Usage()
    return Completion(
        choice.message.content or "",
        choice.finish_reason,
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.completion_tokens_from,
    )


def _error(status: int, headers: Mapping[str, str], message: str) -> Exception:
    reason = f"http_{status}: {message}"
    retry_after = _seconds(headers.get("Retry-After"))
    if status == HTTPStatus.TOO_MANY_REQUESTS or (
        status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after is not None
    ):
        return ServerBusyError(reason, retry_after)
    if status == HTTPStatus.REQUEST_TIMEOUT or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return RetryableError(reason)
    if status in _TOO_LONG_STATUSES and _TOO_LONG.search(message):
        return RejectedError(f"prompt_too_long: {message}")
    return RejectedError(reason)


def _seconds(retry_after: str | None) -> float | None:
    """Parse a Retry-After header, a number of seconds or a date."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, seconds) if seconds < float("inf") else None


# Bodies


def load_json(body: bytes) -> object:
    """Decode JSON; each lone surrogate, which UTF-8 cannot encode, is replaced with U+FFFD.

    Raises:
        ValueError: Not JSON, nested too deeply, or more values than an answer has.
    """
    return _without_surrogates(decode_json(body))


def error_message(body: bytes) -> str:
    """The message of an error body in one line: OpenAI's shape, vLLM's, FastAPI's, or text."""
    try:
        document = load_json(body)
    except ValueError:
        document = body.decode("utf-8", "replace")
    for key in ("error", "message", "detail"):
        if isinstance(document, dict) and document.get(key):
            document = document[key]
    text = document if isinstance(document, str) else json.dumps(document)
    # A server may answer with the headers that it got. Redacted first, because half of a secret is
    # not recognized.
    text = redact(" ".join(text[:_READ_OF_MESSAGE].split())) or "no message"
    return shorten_end(text, _LONGEST_MESSAGE)


def exception_message(error: Exception) -> str:
    """The message of an exception in one line; its type if it has none."""
    return redact(" ".join(str(error).split())) or type(error).__name__


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_surrogates(item) for key, item in value.items()}
    return value


# Models that a server serves: GET /v1/models


async def served_models(
    session: aiohttp.ClientSession,
    base_url: str,
    timeout: float,
    headers: Mapping[str, str] | None = None,
) -> list[str]:
    """Request the names of a server's models.

    Args:
        session: HTTP client that sends the API key.
        base_url: The server's base URL with ``/v1``.
        timeout: Seconds.
        headers: Further headers of this server.

    Raises:
        ServiceError: The server is down, refuses the API key or does not speak the API; one line.
    """
    url = f"{base_url}/models"
    try:
        limit = aiohttp.ClientTimeout(total=timeout)
        async with session.get(url, timeout=limit, headers=headers) as response:
            body = await _SMALL.read(response)
    except AnswerTooLargeError as error:
        raise ServiceError(f"generator {url}: {error}") from None
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        raise ServiceError(
            f"generator {base_url}: not an address such as http://localhost:8000/v1"
        ) from None
    except TimeoutError:
        raise UnavailableError(f"generator {url}: no answer in {timeout:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise UnavailableError(
            f"cannot reach the generator {url}: {exception_message(error)}; is it running?"
        ) from None
    if response.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise ServiceError(
            f"generator {url} refused the API key (HTTP {response.status}: {error_message(body)}); "
            "set the environment variable that generation.api_key_env names"
        )
    if response.status != HTTPStatus.OK:
        kind = UnavailableError if response.status in _UNAVAILABLE_STATUSES else ServiceError
        raise kind(f"generator {url} answered HTTP {response.status}: {error_message(body)}")
    try:
        return _model_names(load_json(body))
    except ValueError:
        raise ServiceError(
            f"generator {url} does not speak the OpenAI API: {error_message(body)}"
        ) from None


def choose_model(configured: str, served: Mapping[str, Sequence[str]]) -> str:
    """Return the configured model, or the only one served.

    Args:
        configured: The name from the configuration, or empty.
        served: Names of the models by server URL.

    Raises:
        ServiceError: A server does not serve the model, or the first server does not have exactly
            one to choose.
    """
    first = next(iter(served.values()))
    if not configured and len(first) != 1:
        names = ", ".join(first) or "none"
        raise ServiceError(f"generation.model is not set and the generator serves: {names}")
    model = configured or first[0]
    for url, models in served.items():
        if model not in models:
            names = ", ".join(models) or "none"
            raise ServiceError(
                f"generator {url} does not serve the model {model!r}; it serves: {names}"
            )
    return model


def _model_names(document: object) -> list[str]:
    models = document.get("data") if isinstance(document, dict) else None
    if not isinstance(models, list):
        raise ValueError("no list of models")
    names = [model.get("id") for model in models if isinstance(model, dict)]
    return [name for name in names if isinstance(name, str)]


# Provenance that a server reports beyond OpenAI's API: GET /info

# Foreign JSON: the object of one server, or the objects of several by URL; None without one.
ServerInfo = JsonObject | None
_JSON_OBJECT = TypeAdapter(JsonObject)


async def server_info(
    session: aiohttp.ClientSession,
    base_url: str,
    timeout: float,
    headers: Mapping[str, str] | None = None,
) -> ServerInfo:
    """Request ``/info``; returns None if the server has no such page or it is no JSON object.

    Args:
        session: HTTP client that sends the API key.
        base_url: The server's base URL with ``/v1``.
        timeout: Seconds.
        headers: Further headers of this server.
    """
    url = f"{base_url.removesuffix('/v1')}/info"
    try:
        limit = aiohttp.ClientTimeout(total=timeout)
        async with session.get(url, timeout=limit, headers=headers) as response:
            body = await _SMALL.read(response) if response.status == HTTPStatus.OK else b""
    # TimeoutError is an OSError.
    except (aiohttp.ClientError, OSError, AnswerTooLargeError):
        return None
    return _json_object(body)


def _json_object(body: bytes) -> ServerInfo:
    try:
        document = load_json(body)
        # The object is written to run.json, where NaN or deep nesting would be an error.
        json.dumps(document, indent=2, allow_nan=False)
        return _JSON_OBJECT.validate_python(document)
    except (ValueError, RecursionError):
        return None
