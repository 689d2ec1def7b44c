"""OpenAI-compatible API, the subset that the generator implements: requests, answers, errors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, Self, TypedDict, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shared.foreign_json import JsonError, decode_json
from shared.schemas import describe
from shared.service.bodies import BodyTooLargeError
from shared.statuses import TokenSource
from shared.text import shorten_end

# The metrics are counters of requests and of the engines, without anything of a request.
WITHOUT_TOKEN = frozenset({"/metrics"})
MAX_LIST = 4096
"""Messages, parts of a message, and members of other lists of a request but token ids."""

_LONGEST_NAME = 200
_ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_ERROR_CODES = {401: "invalid_api_key", 415: "unsupported_media_type"}


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


class _StreamOptions(_Lenient):
    include_usage: bool = False


class CompletionRequest(_Lenient):
    """Common fields of ``/v1/completions`` and ``/v1/chat/completions``."""

    model: str | None = None
    n: int = Field(default=1, ge=1, le=1024)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stream: bool = False
    stream_options: _StreamOptions | None = None

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def question(self) -> str:
        """Text in which a problem's prompt is searched."""
        raise NotImplementedError

    @property
    def prompt_text(self) -> str:
        """The whole prompt, for counting its tokens."""
        return self.question


class ChatRequest(CompletionRequest):
    messages: Annotated[list[Message], _FEW] = Field(min_length=1)

    @property
    def question(self) -> str:
        return next((m.text for m in reversed(self.messages) if m.role == "user"), "")

    @property
    def prompt_text(self) -> str:
        return "".join(message.text for message in self.messages)


class TextRequest(CompletionRequest):
    prompt: str | Annotated[list[str], _FEW]

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if isinstance(self.prompt, list) and len(self.prompt) != 1:
            raise ValueError("prompt: send one prompt per request")
        return self

    @property
    def question(self) -> str:
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]


RequestT = TypeVar("RequestT", bound=CompletionRequest)


def parse_request(kind: type[RequestT], body: bytes) -> RequestT:
    """Parse a request body.

    Raises:
        RequestError: 400, the body is not a valid request.
    """
    try:
        return kind.model_validate(decode_body(body))
    except ValidationError as error:
        raise RequestError(400, describe(error)) from None


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


# Answers


class UsageBody(TypedDict):
    """OpenAI's object; ``completion_tokens_from`` is ours, where no engine counted."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_from: NotRequired[TokenSource]


class MessageBody(TypedDict, total=False):
    """A message, or a delta of it in a stream."""

    role: Literal["assistant"]
    content: str


class ChoiceBody(TypedDict):
    """A choice has a ``message`` (chat), a ``delta`` (streamed chat) or a ``text``."""

    index: int
    logprobs: None
    finish_reason: str | None
    message: NotRequired[MessageBody]
    delta: NotRequired[MessageBody]
    text: NotRequired[str]


class AnswerBody(TypedDict):
    """A completion, or a chunk of a stream; ``usage`` is absent unless it was requested."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChoiceBody]
    usage: NotRequired[UsageBody | None]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the ``n`` answers to a request; ``gen_time`` is seconds.

    ``tokens_from`` says that it was not an engine that counted the tokens.
    """

    text: str
    finish_reason: str
    tokens: int
    gen_time: float = 0.0
    tokens_from: TokenSource | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete response, sent as one body or as a stream of chunks."""

    id: str
    created: int
    model: str
    chat: bool
    choices: Sequence[Choice]
    prompt_tokens: int

    @property
    def completion_tokens(self) -> int:
        return sum(choice.tokens for choice in self.choices)

    def body(self) -> AnswerBody:
        body = self._envelope("chat.completion" if self.chat else "text_completion")
        for index, choice in enumerate(self.choices):
            shown = ChoiceBody(index=index, logprobs=None, finish_reason=choice.finish_reason)
            if self.chat:
                shown["message"] = {"role": "assistant", "content": choice.text}
            else:
                shown["text"] = choice.text
            body["choices"].append(shown)
        body["usage"] = self._usage()
        return body

    def chunks(self, size: int, *, include_usage: bool) -> Iterator[AnswerBody]:
        """Split the answer into chunks of up to ``size`` characters of text."""
        for index, choice in enumerate(self.choices):
            for part in self._parts(index, choice, size):
                yield self._chunk([part], None, include_usage)
        if include_usage:
            yield self._chunk([], self._usage(), include_usage)

    def _parts(self, index: int, choice: Choice, size: int) -> Iterator[ChoiceBody]:
        def part(delta: MessageBody, finish_reason: str | None = None) -> ChoiceBody:
            made = ChoiceBody(index=index, logprobs=None, finish_reason=finish_reason)
            if self.chat:
                made["delta"] = delta
            else:
                made["text"] = delta.get("content", "")
            return made

        if self.chat:
            yield part({"role": "assistant", "content": ""})
        for start in range(0, len(choice.text), size):
            yield part({"content": choice.text[start : start + size]})
        yield part({}, choice.finish_reason)

    def _chunk(
        self, choices: list[ChoiceBody], usage: UsageBody | None, include_usage: bool
    ) -> AnswerBody:
        chunk = self._envelope("chat.completion.chunk" if self.chat else "text_completion")
        chunk["choices"] = choices
        if include_usage:
            chunk["usage"] = usage
        return chunk

    def _envelope(self, kind: str) -> AnswerBody:
        return AnswerBody(
            id=self.id, object=kind, created=self.created, model=self.model, choices=[]
        )

    def _usage(self) -> UsageBody:
        usage = UsageBody(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            total_tokens=self.prompt_tokens + self.completion_tokens,
        )
        if source := next((one.tokens_from for one in self.choices if one.tokens_from), None):
            usage["completion_tokens_from"] = source
        return usage
