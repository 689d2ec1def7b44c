"""What a server's answer says: a completion, a failure worth another try, or a refusal."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from pydantic import BaseModel, Field, ValidationError

from shared.schemas import describe, without_surrogates

# vLLM: "maximum context length is 8 tokens. However, you requested", "longer than the maximum model
# length of 8"; SGLang: "longer than the model's context length (8 tokens)", "exceeds the model's
# maximum context length of 8 tokens"; the rest are others' words. Not meant is vLLM's "max_tokens=9
# cannot be greater than max_model_len": that is the config, and befalls every sample.
_TOO_LONG = re.compile(
    r"context[ _](length|window)|max(imum)? (model |input |prompt |context )*len(gth)?\b"
    r"|(exceed|longer than)\w*\b.*\bmax_model_len|(prompt|input|messages?)\b.* too long",
    re.IGNORECASE,
)
_TOO_LONG_STATUSES = (400, 413, 422)
_LONGEST_MESSAGE = 500


class TryAgainError(Exception):
    """A failure that another request may not meet."""


class NoAnswerError(TryAgainError):
    """The server was not reached, or did not answer in time."""


class BusyError(Exception):
    """The server is well and says: later. ``retry_after`` is seconds, where told."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class RefusedError(Exception):
    """The server will not answer this request, however often it is asked."""


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Body(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    finish_reason: str | None
    prompt_tokens: int | None
    output_tokens: int | None


def read_completion(status: int, headers: Mapping[str, str], body: bytes) -> Completion:
    """Read the answer to a chat completion request.

    Raises:
        BusyError: 429, or 503 with a Retry-After.
        TryAgainError: Broken (408, 5xx), aborted, or a body that cannot be used.
        RefusedError: Any other status than 200.
    """
    if status != 200:
        raise _refusal(status, headers, message_of(body))
    try:
        answer = _Body.model_validate(load_json(body))
    except ValidationError as error:
        raise TryAgainError(f"bad_answer: {describe(error)}; {message_of(body)}") from None
    except ValueError:
        raise TryAgainError(f"bad_answer: not JSON: {message_of(body)}") from None
    choice = answer.choices[0]
    if choice.finish_reason == "abort":
        raise TryAgainError("abort: the server gave the request up")
    usage = answer.usage or _Usage()
    return Completion(
        choice.message.content or "",
        choice.finish_reason,
        usage.prompt_tokens,
        usage.completion_tokens,
    )


def _refusal(status: int, headers: Mapping[str, str], message: str) -> Exception:
    reason = f"http_{status}: {message}"
    retry_after = _seconds(headers.get("Retry-After"))
    if status == 429 or (status == 503 and retry_after is not None):
        return BusyError(reason, retry_after)
    if status == 408 or status >= 500:
        return TryAgainError(reason)
    if status in _TOO_LONG_STATUSES and _TOO_LONG.search(message):
        return RefusedError(f"prompt_too_long: {message}")
    return RefusedError(reason)


def load_json(body: bytes) -> object:
    """Decode JSON, each lone surrogate (which UTF-8 cannot hold) replaced with U+FFFD.

    Raises:
        ValueError: Not JSON, or nested beyond reason.
    """
    try:
        return _without_surrogates(json.loads(body))
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def message_of(body: bytes) -> str:
    """What an error body says, in one line: OpenAI's shape, vLLM's, FastAPI's, or plain text."""
    try:
        document = load_json(body)
    except ValueError:
        document = body.decode("utf-8", "replace")
    for key in ("error", "message", "detail"):
        if isinstance(document, dict) and document.get(key):
            document = document[key]
    text = document if isinstance(document, str) else json.dumps(document)
    text = " ".join(text.split()) or "no message"
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_surrogates(item) for key, item in value.items()}
    return value


def _seconds(retry_after: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, given as a number or as a date."""
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
