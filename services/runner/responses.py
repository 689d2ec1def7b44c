"""Responses of OpenAI-compatible servers: completions, error classification, models, ``/info``."""

import json
import math
import re
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

import aiohttp

from services.runner.admission import Server
from shared.config import GenerationConfig
from shared.errors import ServiceError, UnavailableError
from shared.foreign_json import decode_json
from shared.redaction import redact
from shared.run_record import JsonObject
from shared.schemas import without_surrogates
from shared.service.bodies import AnswerTooLargeError, read_answer
from shared.statuses import TokenSource
from shared.text import one_line, shorten_end

# Characters of a server's message. Bytes of a list of models (OpenRouter's has hundreds).
_LONGEST_MESSAGE, _MAX_MODELS = 500, 2**24
_INFO, _MAX_INFO = 10.0, 2**20  # seconds for ``/info``, and its bytes


class RejectedError(Exception):
    """The server rejects this request permanently; a retry is useless."""


class RetryableError(Exception):
    """A failure that is worth a retry; the request may be its cause."""


@dataclass(eq=False)
class OutageError(RetryableError):
    """The server, or what is behind it, is at fault, unless other requests succeed meanwhile.

    ``verb`` is what the server does. An ``unreachable`` one has seen nothing of the request, a
    ``busy`` one is healthy and rejects it for now (backpressure). ``retry_after`` is its header in
    seconds; infinite for a used-up quota.
    """

    reason: str
    verb: str = "does not answer"
    unreachable: bool = False
    busy: bool = False
    retry_after: float | None = None

    def __str__(self) -> str:
        return self.reason


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
_THOUGHTS = ("thinking", "reasoning")


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
        OutageError: 429, 5xx, a used-up quota, and statuses that pass, such as 404 while a model
            loads.
        RetryableError: An unfinished completion, or an unusable body.
        RejectedError: Any other status, or an answer that a filter withholds.
    """
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise _error(status, headers, body)
    answered = _content(body)
    if isinstance(answered, str):
        raise RetryableError(f"bad_answer: not JSON: {_shown(answered)}")
    document = _fields(answered)
    choices = document.get("choices")
    if document.get("error") and not choices:
        raise _error(HTTPStatus.OK, headers, body)
    if not isinstance(choices, list) or not choices:
        raise RetryableError(f"bad_answer: no choices; {_shown(answered)}")
    first = next((choice for choice in choices if _fields(choice).get("index") == 0), choices[0])
    choice, usage = _fields(first), _fields(document.get("usage"))
    finish_reason = _finish_reason(choice, config)
    message = _fields(choice.get("message"))
    content, reasoning = _text(message.get("content")), _reasoning(message)
    other = choice.get("text")  # of servers that answer as to a completion request
    if content is None or not (message or isinstance(other, str)):
        raise RetryableError(f"bad_answer: the choice has no text; {_shown(document)}")
    text = content or _text(other) or ""
    if (refusal := _text(message.get("refusal"))) and not text.strip():
        raise RejectedError(f"refusal: {_shown(refusal)}")
    if finish_reason is None and not (text or reasoning):
        raise RetryableError("unfinished: neither text nor finish_reason")
    alone = reasoning is not None and not text.strip() and finish_reason in ("stop", None)
    from_reasoning = alone and config.reasoning == "judge"
    counted_by = usage.get("completion_tokens_from")  # the replay backend's
    return Completion(
        completion=reasoning or "" if from_reasoning else text,
        finish_reason=finish_reason,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
        output_tokens_from=next((name for name in TokenSource if name == counted_by), None),
        reasoning=None if from_reasoning else reasoning,
        completion_from="reasoning" if from_reasoning else None,
    )


def _fields(value: object) -> Mapping[str, Any]:
    """A JSON object; empty for a value of another type."""
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    whole = isinstance(value, int | float) and 0 <= value < 2**53 and value % 1 == 0
    return int(value) if whole else None  # type: ignore[call-overload]


def _text(value: object) -> str | None:
    """A message's text: its parts joined, without thoughts and images; None for another type."""
    if isinstance(value, dict):
        return "" if value.get("type") in _THOUGHTS else _text(value.get("text"))
    if isinstance(value, list):
        return "".join(filter(None, map(_text, value)))
    if value is None:
        return ""
    return without_surrogates(value) if isinstance(value, str) else None


def _reasoning(message: Mapping[str, Any]) -> str | None:
    """The thoughts: in one of two fields, or among the parts of the content."""
    content = message.get("content")
    parts = map(_fields, content) if isinstance(content, list) else ()
    thoughts = [
        part.get(part["type"], part.get("text")) for part in parts if part.get("type") in _THOUGHTS
    ]
    values = (message.get("reasoning_content"), message.get("reasoning"), thoughts)
    return next(filter(None, map(_text, values)), None)


def _finish_reason(choice: Mapping[str, Any], config: GenerationConfig) -> str | None:
    """The finish reason in OpenAI's words; raises if the choice is no answer or is withheld."""
    word, error = choice.get("finish_reason"), choice.get("error")
    reason = _FINISH_REASONS.get(str(word).lower())
    cause = f" ({_shown(error)})" if error else ""
    if word and not reason and _FILTERED.search(str(word)):
        raise RejectedError(f"content_filter: finish_reason {word!r}{cause}")
    if error or not (word is None or reason or word in config.finish_reasons):
        raise RetryableError(f"unfinished: finish_reason {shorten_end(repr(word), 80)}{cause}")
    return reason or word


# Errors

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
_TOO_LONG_STATUSES = (400, 413, 422)
_QUOTA = re.compile(
    r"insufficient[ _](\w+[ _])?(quota|balance|credit|fund)|exceeded_current_quota|arrearage"
    r"|billing_(hard_limit|not_active)|budget[ _]?(has been )?exceeded|credit balance is too low",
    re.IGNORECASE,
)
_LOADING = re.compile(r"\bmodel\b|loading|warming|starting|not (yet )?ready", re.IGNORECASE)
# Besides 429 and 5xx: a time-out, a conflict or a request that came too early, of some gateways.
_PASSING = (408, 409, 424, 425)


def _error(status: int, headers: Mapping[str, str], body: bytes) -> Exception:
    content = _content(body)
    message, document = _shown(content), _fields(content)
    error = _fields(document.get("error", document))
    code = " ".join(str(error.get(key) or "")[:100] for key in ("code", "type"))
    if status == HTTPStatus.OK and (named := re.match(r"[45]\d\d\b", code)):
        status = int(named[0])
    retry_after = _seconds(headers.get("Retry-After"))
    if quota := status == HTTPStatus.PAYMENT_REQUIRED or _QUOTA.search(f"{code} {message}"):
        retry_after = math.inf
    unavailable = status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after is not None
    busy = bool(quota or status == HTTPStatus.TOO_MANY_REQUESTS or unavailable)
    loading = status == HTTPStatus.NOT_FOUND and _LOADING.search(message)
    if busy or loading or status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        reason, verb = f"http_{status}: {message}", f"answers HTTP {status}"
        return OutageError(reason, verb, busy=busy, retry_after=retry_after if busy else None)
    if status in _TOO_LONG_STATUSES and _TOO_LONG.search(f"{code} {message}"):
        return RejectedError(f"prompt_too_long: {message}")
    if _FILTERED.search(code):
        return RejectedError(f"content_filter: {message}")
    if status == HTTPStatus.OK:
        return RetryableError(f"bad_answer: {message}")
    moved = headers.get("Location") if status < HTTPStatus.BAD_REQUEST else None
    place = f"; it names {redact(moved)}" if moved else ""
    return RejectedError(f"http_{status}: {message}{place}")


def _seconds(retry_after: str | None) -> float | None:
    """The seconds of a Retry-After header; None for a date."""
    try:
        seconds = float(retry_after or "")
    except ValueError:
        return None
    return max(0.0, seconds) if seconds < math.inf else None


def _content(body: bytes) -> object:
    """The body as JSON, or as a text where it is not."""
    try:
        return decode_json(body)
    except ValueError:
        return body.decode("utf-8", "replace")


def _shown(error: object) -> str:
    """The message of an error in one line: OpenAI's shape, vLLM's, FastAPI's, or text."""
    for key in ("error", "message", "detail"):
        if isinstance(error, dict) and error.get(key):
            error = error[key]
    text = without_surrogates(error) if isinstance(error, str) else json.dumps(error)
    # A server may answer with the headers that it got. Redacted first, because half of a secret is
    # not recognized.
    text = redact(" ".join(text[: 4 * _LONGEST_MESSAGE].split())) or "no message"
    return shorten_end(text, _LONGEST_MESSAGE)


# Requests


async def send(
    request: AbstractAsyncContextManager[aiohttp.ClientResponse], name: str, limit: int
) -> tuple[int, Mapping[str, str], bytes]:
    """Send a request to the server of this name; returns status, headers and body.

    Raises:
        OutageError: The server does not answer.
        RetryableError: The answer has more than ``limit`` bytes.
        RejectedError: The address is none.
    """
    began = time.monotonic()
    try:
        async with request as response:
            return response.status, response.headers, await read_answer(response, limit)
    except AnswerTooLargeError as error:
        raise RetryableError(f"bad_answer: {name}: {error}") from None
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        raise RejectedError("not an address such as http://localhost:8000") from None
    except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
        late = isinstance(error, aiohttp.ConnectionTimeoutError)
        if isinstance(error, TimeoutError) and not late:
            seconds = f"{time.monotonic() - began:.1f} s"
            raise OutageError(f"timeout: no answer from {name} in {seconds}") from None
        reason = f"connection: {name}: {'connecting timed out' if late else one_line(error)}"
        connecting = isinstance(error, aiohttp.ClientConnectorError)
        if late or (connecting and not isinstance(error, aiohttp.ClientSSLError)):  # stays wrong
            raise OutageError(reason, "refuses connections", unreachable=True) from None
        raise OutageError(reason) from None


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
        status, headers, body = await _get(session, server, url, seconds, _MAX_MODELS)
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
    document: Any = _content(body)
    try:
        models = document if isinstance(document, list) else document["data"]  # Together's is bare
        return [str(model["id"]) for model in models]
    except (KeyError, TypeError):
        cause = f"does not speak the OpenAI API: {_shown(document)}"
        raise ServiceError(f"generator {url} {cause}") from None


async def server_info(session: aiohttp.ClientSession, server: Server) -> JsonObject | None:
    """Request ``/info``; returns None if the server has no such page or it is no JSON object."""
    url = f"{server.url.removesuffix('/v1')}/info"
    try:
        status, _, body = await _get(session, server, url, _INFO, _MAX_INFO)
        document = decode_json(body) if status == HTTPStatus.OK else None
        # run.json, which will hold it, has neither NaN nor deep nesting nor lone surrogates.
        json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False).encode()
    except (RetryableError, RejectedError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


async def _get(
    session: aiohttp.ClientSession, server: Server, url: str, seconds: float, limit: int
) -> tuple[int, Mapping[str, str], bytes]:
    timeout = aiohttp.ClientTimeout(total=seconds)
    request = session.get(url, timeout=timeout, headers=server.headers)
    return await send(request, server.name, limit)
