"""Responses of OpenAI-compatible servers: completions, error classification, models, ``/info``."""

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar

import aiohttp
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    WrapValidator,
    model_validator,
)

from services.runner.admission import Server
from shared.config import GenerationConfig
from shared.errors import ServiceError, UnavailableError
from shared.foreign_json import decode_json
from shared.redaction import redact
from shared.run_record import JsonObject
from shared.schemas import describe, without_surrogates
from shared.service.bodies import AnswerTooLargeError, read_answer
from shared.statuses import TokenSource
from shared.text import one_line, shorten_end

# Few servers have OpenAI's error code for a prompt that is too long, so messages are matched too.
# vLLM: "maximum context length is 8 tokens. However, you requested", "longer than the maximum model
# length of 8"; SGLang: "longer than the model's context length (8 tokens)", "exceeds the model's
# maximum context length of 8 tokens", "exceeds the maximum allowed length (8 tokens)"; the rest is
# from other servers. vLLM's "max_tokens=9 cannot be greater than max_model_len" must not match: it
# is a config error that affects every sample.
_TOO_LONG = re.compile(
    r"context[ _]?(length|window)|max(imum)? (model |input |prompt |context |allowed )*len(gth)?\b"
    r"|(exceed|longer than)\w*\b.*\bmax_model_len|(prompt|input|messages?)\b.* too long",
    re.IGNORECASE,
)
_TOO_LONG_STATUSES = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_LONGEST_MESSAGE = 500
_READ_OF_MESSAGE = 4 * _LONGEST_MESSAGE
# Pages about a server, of which there are few at once.
_SMALL = 2**20


class RetryableError(Exception):
    """A failure that is worth a retry; the request may be its cause."""


class OutageError(RetryableError):
    """The server, or what is behind it, is at fault, unless other requests succeed meanwhile.

    ``verb`` is what the server does, for the report of an outage.
    """

    verb = "does not answer"


class UnreachableError(OutageError):
    """The server could not be connected to, so it has seen nothing of the request."""

    verb = "refuses connections"


class ErrorStatusError(OutageError):
    """The server answers with the status of an error that passes."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"http_{status}: {message}")
        self.verb = f"answers HTTP {status}"


class ServerBusyError(ErrorStatusError):
    """The server is healthy and rejects the request for now (backpressure).

    ``retry_after`` is its Retry-After in seconds, if it sent one; infinite for a used-up quota.
    """

    def __init__(self, status: int, message: str, retry_after: float | None) -> None:
        super().__init__(status, message)
        self.retry_after = retry_after


class RejectedError(Exception):
    """The server rejects this request permanently; a retry is useless."""


# Chat completions

# Finish reasons of an answer, in OpenAI's words, with the words of other servers. Any other one
# is a failed generation.
_FINISHED = {
    "stop": "stop eos eos_token end_turn stop_sequence complete completed",
    "length": "length max_tokens max_output_tokens max_length model_length",
    "tool_calls": "tool_calls tool_use function_call",
}
_FINISH_REASONS = {word: reason for reason, words in _FINISHED.items() for word in words.split()}
_FILTERED = re.compile(
    r"content.?(filter|policy)|guardrail|safety|recitation|blocklist|prohibited|sensitive|spii"
    r"|refus|data_inspection",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient[ _](\w+[ _])?(quota|balance|credit|fund)|exceeded_current_quota|arrearage"
    r"|billing_(hard_limit|not_active)|budget[ _]?(has been )?exceeded|credit balance is too low",
    re.IGNORECASE,
)
_LOADING = re.compile(r"\bmodel\b|loading|warming|starting|not (yet )?ready", re.IGNORECASE)
# Besides 429 and 5xx: a conflict or a request that came too early, as some gateways answer.
_PASSING = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.FAILED_DEPENDENCY,
    HTTPStatus.TOO_EARLY,
)
_THOUGHTS = ("thinking", "reasoning")

T = TypeVar("T")


def _or_none(value: object, validate: Callable[[object], T]) -> T | None:
    """Take a value of the wrong type for an absent one."""
    try:
        return validate(value)
    except ValidationError:
        return None


_Lenient = WrapValidator(_or_none)
_Count = Annotated[int | None, Field(ge=0), _Lenient]


def _joined(value: object) -> object:
    """Join the text parts of a message; other parts, such as thoughts or images, are left out."""
    if isinstance(value, Mapping):
        return "" if value.get("type") in _THOUGHTS else _joined(value.get("text"))
    if isinstance(value, list):
        return "".join(part for part in map(_joined, value) if isinstance(part, str))
    return "" if value is None else value


_Text = Annotated[str, BeforeValidator(_joined)]


class _Message(BaseModel):
    """The answer; ``reasoning_content`` and ``reasoning`` are servers' names for the thoughts."""

    content: _Text = ""
    reasoning_content: Annotated[_Text | None, _Lenient] = None
    reasoning: Annotated[_Text | None, _Lenient] = None
    refusal: Annotated[str | None, _Lenient] = None

    @model_validator(mode="before")
    @classmethod
    def _thoughts_among_parts(cls, fields: object) -> object:
        parts = fields.get("content") if isinstance(fields, dict) else None
        if not isinstance(fields, dict) or not isinstance(parts, list):
            return fields
        kinds = [(part, part.get("type")) for part in parts if isinstance(part, dict)]
        thoughts = [part.get(kind, part.get("text")) for part, kind in kinds if kind in _THOUGHTS]
        return {"reasoning": thoughts, **fields}


class _Choice(BaseModel):
    """A choice; ``text`` is that of servers that answer as to a completion request."""

    index: Annotated[int | None, _Lenient] = None
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    error: object = None


class _Usage(BaseModel):
    """OpenAI's object; ``completion_tokens_from`` is the replay backend's."""

    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    completion_tokens_from: Annotated[TokenSource | None, _Lenient] = None


class _Body(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: Annotated[_Usage | None, _Lenient] = None


@dataclass(frozen=True, slots=True)
class Completion:
    """The first choice of a chat completion, in the fields of a ``Generation``.

    ``finish_reason`` is OpenAI's word for it. ``reasoning`` are the thoughts that the server sent
    apart from the text; ``completion_from`` is set if they are the text.
    """

    completion: str
    finish_reason: str | None
    prompt_tokens: int | None
    output_tokens: int | None
    output_tokens_from: TokenSource | None
    reasoning: str | None
    completion_from: Literal["reasoning"] | None


_DEFAULTS = GenerationConfig()


def read_completion(
    status: int, headers: Mapping[str, str], body: bytes, config: GenerationConfig = _DEFAULTS
) -> Completion:
    """Parse the response to a chat completion request.

    Raises:
        ServerBusyError: 429, 503 with a Retry-After, or a used-up quota.
        OutageError: 5xx, and statuses that pass, such as 404 while a model loads.
        RetryableError: An unfinished completion, or an unusable body.
        RejectedError: Any other status, or an answer that a filter withholds.
    """
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise _error(status, headers, body)
    try:
        document = load_json(body)
        if isinstance(document, dict) and document.get("error") and not document.get("choices"):
            raise _error(_code_in(document["error"]), headers, body)
        answer = _Body.model_validate(document)
    except ValidationError as error:
        raise RetryableError(f"bad_answer: {describe(error)}; {error_message(body)}") from None
    except ValueError:
        raise RetryableError(f"bad_answer: not JSON: {error_message(body)}") from None
    choice = next((one for one in answer.choices if one.index == 0), answer.choices[0])
    finish_reason = _finish_reason(choice, config)
    if choice.message is None and choice.text is None:
        raise RetryableError("bad_answer: the choice has no message")
    message, usage = choice.message or _Message(), answer.usage or _Usage()
    text = message.content or choice.text or ""
    reasoning = message.reasoning_content or message.reasoning or None
    if message.refusal and not text.strip():
        raise RejectedError(f"refusal: {_shown(message.refusal)}")
    if finish_reason is None and not (text or reasoning):
        raise RetryableError("unfinished: neither text nor finish_reason")
    alone = reasoning is not None and not text.strip() and finish_reason in ("stop", None)
    from_reasoning = alone and config.reasoning == "judge"
    return Completion(
        completion=reasoning or "" if from_reasoning else text,
        finish_reason=finish_reason,
        prompt_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        output_tokens_from=usage.completion_tokens_from,
        reasoning=None if from_reasoning else reasoning,
        completion_from="reasoning" if from_reasoning else None,
    )


def _finish_reason(choice: _Choice, config: GenerationConfig) -> str | None:
    """The finish reason of an answer, in OpenAI's words.

    Raises:
        RetryableError: The choice is no answer.
        RejectedError: A filter withholds it.
    """
    word = choice.finish_reason
    reason = _FINISH_REASONS.get((word or "").lower())
    cause = f" ({_shown(choice.error)})" if choice.error else ""
    if word and not reason and _FILTERED.search(word):
        raise RejectedError(f"content_filter: finish_reason {word!r}{cause}")
    if choice.error or not (word is None or reason or word in config.finish_reasons):
        raise RetryableError(f"unfinished: finish_reason {shorten_end(repr(word), 80)}{cause}")
    return reason or word


def _error(status: int, headers: Mapping[str, str], body: bytes) -> Exception:
    message, code = error_message(body), _error_code(body)
    retry_after = _seconds(headers.get("Retry-After"))
    if status == HTTPStatus.PAYMENT_REQUIRED or _QUOTA.search(f"{code} {message}"):
        return ServerBusyError(status, message, math.inf)
    if status == HTTPStatus.TOO_MANY_REQUESTS or (
        status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after is not None
    ):
        return ServerBusyError(status, message, retry_after)
    loading = status == HTTPStatus.NOT_FOUND and _LOADING.search(message)
    if loading or status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ErrorStatusError(status, message)
    if status in _TOO_LONG_STATUSES and _TOO_LONG.search(f"{code} {message}"):
        return RejectedError(f"prompt_too_long: {message}")
    if _FILTERED.search(code):
        return RejectedError(f"content_filter: {message}")
    if status == HTTPStatus.OK:
        return RetryableError(f"bad_answer: {message}")
    moved = headers.get("Location") if status < HTTPStatus.BAD_REQUEST else None
    return RejectedError(
        f"http_{status}: {message}{f'; it names {redact(moved)}' if moved else ''}"
    )


def _code_in(error: object) -> int:
    """The HTTP status that an error in a body with the status 200 names; 200 if it names none."""
    code = str(error.get("code")) if isinstance(error, dict) else ""
    return int(code) if re.fullmatch("[45][0-9][0-9]", code) else HTTPStatus.OK


def _error_code(body: bytes) -> str:
    """Code and type of an error body."""
    document = _document(body)
    error = document.get("error", document) if isinstance(document, dict) else None
    fields = error if isinstance(error, dict) else {}
    return " ".join(str(fields.get(key) or "")[:100] for key in ("code", "type"))


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
        ValueError: Not JSON, or nested too deeply.
    """
    return _without_surrogates(decode_json(body))


def error_message(body: bytes) -> str:
    """The message of an error body in one line: OpenAI's shape, vLLM's, FastAPI's, or text."""
    return _shown(_document(body))


def _document(body: bytes) -> object:
    """The body as JSON, or as a text where it is not."""
    try:
        return load_json(body)
    except ValueError:
        return body.decode("utf-8", "replace")


def _shown(error: object) -> str:
    for key in ("error", "message", "detail"):
        if isinstance(error, dict) and error.get(key):
            error = error[key]
    text = error if isinstance(error, str) else json.dumps(error)
    # A server may answer with the headers that it got. Redacted first, because half of a secret is
    # not recognized.
    text = redact(" ".join(text[:_READ_OF_MESSAGE].split())) or "no message"
    return shorten_end(text, _LONGEST_MESSAGE)


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_surrogates(item) for key, item in value.items()}
    return value


# Requests


async def send(
    request: AbstractAsyncContextManager[aiohttp.ClientResponse], server: Server, most: int
) -> tuple[int, Mapping[str, str], bytes]:
    """Send a request; returns status, headers and body.

    Raises:
        OutageError: The server does not answer; :class:`UnreachableError` if it has seen nothing of
            the request.
        RetryableError: The answer has more than ``most`` bytes.
        RejectedError: The address is none.
    """
    began = time.monotonic()
    try:
        async with request as response:
            return response.status, response.headers, await read_answer(response, most)
    except AnswerTooLargeError as error:
        raise RetryableError(f"bad_answer: {server.name}: {error}") from None
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        raise RejectedError("not an address such as http://localhost:8000/v1") from None
    except aiohttp.ConnectionTimeoutError:
        raise UnreachableError(f"connection: {server.name}: connecting timed out") from None
    except TimeoutError:
        seconds = f"{time.monotonic() - began:.1f} s"
        raise OutageError(f"timeout: no answer from {server.name} in {seconds}") from None
    except (aiohttp.ClientError, OSError) as error:
        connecting = isinstance(error, aiohttp.ClientConnectorError)
        # A certificate that is wrong stays so.
        unreachable = connecting and not isinstance(error, aiohttp.ClientSSLError)
        kind = UnreachableError if unreachable else OutageError
        raise kind(f"connection: {server.name}: {one_line(error)}") from None


# Checks before a run: GET /v1/models, and GET /info, which is no part of OpenAI's API


async def served_models(
    session: aiohttp.ClientSession, server: Server, seconds: float
) -> list[str]:
    """Request the names of a server's models; ``session`` sends the API key.

    Raises:
        ServiceError: The server is down, refuses the API key or does not speak the API; one line.
    """
    url = f"{server.url}/models"
    try:
        status, headers, body = await _get(session, server, url, seconds)
        if status != HTTPStatus.OK:
            raise _error(status, headers, body)
    except (RetryableError, RejectedError) as error:
        cause = re.sub("^http_", "HTTP ", str(error))
        if isinstance(error, OutageError):
            raise UnavailableError(
                f"cannot reach the generator {url}: {cause}; is it running?"
            ) from None
        raise ServiceError(
            f"generator {url} refused the request ({cause}); check the address and "
            "the API key, in the environment variable that generation.api_key_env names"
        ) from None
    try:
        document: Any = load_json(body)
        return [str(model["id"]) for model in document["data"]]
    except (ValueError, KeyError, TypeError):
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


async def server_info(
    session: aiohttp.ClientSession, server: Server, seconds: float
) -> JsonObject | None:
    """Request ``/info``; returns None if the server has no such page or it is no JSON object."""
    url = f"{server.url.removesuffix('/v1')}/info"
    try:
        status, _, body = await _get(session, server, url, seconds)
        document = load_json(body) if status == HTTPStatus.OK else None
        # The object is written to run.json, where NaN or deep nesting would be an error.
        json.dumps(document, indent=2, allow_nan=False)
    except (RetryableError, RejectedError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


async def _get(
    session: aiohttp.ClientSession, server: Server, url: str, seconds: float
) -> tuple[int, Mapping[str, str], bytes]:
    timeout = aiohttp.ClientTimeout(total=seconds)
    return await send(session.get(url, timeout=timeout, headers=server.headers), server, _SMALL)
