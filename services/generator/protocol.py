"""The part of OpenAI's API that the generator speaks: requests in, answers and errors out."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shared.schemas import describe

_ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class RequestError(Exception):
    """A request that gets an error body instead of an answer."""

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


class _Lenient(BaseModel):
    # Servers take many sampling parameters; those that change nothing here are let through.
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Part(_Lenient):
    text: str = ""


class Message(_Lenient):
    role: str
    content: str | list[_Part] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class _StreamOptions(_Lenient):
    include_usage: bool = False


class CompletionRequest(_Lenient):
    """What ``/v1/completions`` and ``/v1/chat/completions`` have in common."""

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
        """The text in which a problem's prompt is looked for."""
        raise NotImplementedError

    @property
    def prompt_text(self) -> str:
        """All of the prompt, for the count of its tokens."""
        return self.question


class ChatRequest(CompletionRequest):
    messages: list[Message] = Field(min_length=1)

    @property
    def question(self) -> str:
        return next((m.text for m in reversed(self.messages) if m.role == "user"), "")

    @property
    def prompt_text(self) -> str:
        return "".join(message.text for message in self.messages)


class TextRequest(CompletionRequest):
    prompt: str | list[str]

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if isinstance(self.prompt, list) and len(self.prompt) != 1:
            raise ValueError("prompt: one prompt a request, please")
        return self

    @property
    def question(self) -> str:
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]


RequestT = TypeVar("RequestT", bound=CompletionRequest)


def parse_request(kind: type[RequestT], body: bytes) -> RequestT:
    """Read a request's body.

    Raises:
        RequestError: 400, as OpenAI and vLLM answer it.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError(400, "the request body is not JSON", code="invalid_json") from None
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise RequestError(400, describe(error)) from None


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer of a request; ``gen_time`` is seconds."""

    text: str
    finish_reason: str
    tokens: int
    gen_time: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """All that an answer's body says, in one piece or as a stream of chunks."""

    id: str
    created: int
    model: str
    chat: bool
    choices: Sequence[Choice]
    prompt_tokens: int

    @property
    def completion_tokens(self) -> int:
        return sum(choice.tokens for choice in self.choices)

    def body(self) -> dict[str, Any]:
        choices = []
        for index, choice in enumerate(self.choices):
            shown: dict[str, Any] = {
                "index": index,
                "logprobs": None,
                "finish_reason": choice.finish_reason,
            }
            if self.chat:
                shown["message"] = {"role": "assistant", "content": choice.text}
            else:
                shown["text"] = choice.text
            choices.append(shown)
        name = "chat.completion" if self.chat else "text_completion"
        return {**self._head(name), "choices": choices, "usage": self._usage()}

    def chunks(self, piece: int, *, include_usage: bool) -> Iterator[dict[str, Any]]:
        """The answer in parts with up to ``piece`` characters of text each."""
        head = self._head("chat.completion.chunk" if self.chat else "text_completion")
        if include_usage:
            head["usage"] = None
        for index, choice in enumerate(self.choices):
            for part in self._parts(choice, piece):
                yield {**head, "choices": [{"index": index, "logprobs": None, **part}]}
        if include_usage:
            yield {**head, "choices": [], "usage": self._usage()}

    def _parts(self, choice: Choice, piece: int) -> Iterator[dict[str, Any]]:
        if self.chat:
            yield {"delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        for start in range(0, len(choice.text), piece):
            text = choice.text[start : start + piece]
            content: dict[str, Any] = {"delta": {"content": text}} if self.chat else {"text": text}
            yield {**content, "finish_reason": None}
        end: dict[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        yield {**end, "finish_reason": choice.finish_reason}

    def _head(self, name: str) -> dict[str, Any]:
        return {"id": self.id, "object": name, "created": self.created, "model": self.model}

    def _usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }
