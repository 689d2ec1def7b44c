"""Fault injection: HTTP errors, connection resets, hangs and damaged answers."""

import asyncio
import hashlib
import json
import socket
import struct
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from aiohttp import web

from services.generator.protocol import Answer, AnswerBody, RequestError
from shared.errors import ConfigError

FAULTS = {
    "ok": "no fault",
    "reset": "the connection is reset",
    "hang": "no answer until the server stops",
    "abort": 'HTTP 200 with a cut text and finish_reason "abort"',
    "error": 'HTTP 200 with a cut text and finish_reason "error"',
    "content_filter": 'HTTP 200 without a text and finish_reason "content_filter"',
    "reasoning": "the text in reasoning_content, and no content",
    "parts": "the text as a list of parts",
    "empty": "HTTP 200 with no choices",
    "garbage": "HTTP 200 with a body that is not JSON",
    "truncated": "a body that ends in the middle",
    "too_long": "HTTP 400 as vLLM answers a prompt that is too long",
    "insufficient_quota": "HTTP 429 as OpenAI answers when the account has no quota left",
}
"""Faults by name. Any HTTP status from 400 to 599 is a fault as well, and ``@<file>`` the response
that a JSON file describes: ``status``, ``headers``, and ``body`` (JSON, or a text)."""

_DEFAULT_RETRY_AFTER = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """``name`` is a key of ``FAULTS``, an HTTP status or a file; ``retry_after`` is seconds.

    ``lasting``: all further requests get it.
    """

    name: str
    status: int | None = None
    retry_after: float | None = None
    lasting: bool = False


OK = Fault("ok")


def parse_faults(names: Sequence[str]) -> list[Fault]:
    """Parse a list such as ``500``, ``429:0.1`` (with Retry-After), ``error*`` (lasting).

    Raises:
        ConfigError: An unknown name.
    """
    return [replace(_parse(name.removesuffix("*")), lasting=name.endswith("*")) for name in names]


def _parse(text: str) -> Fault:
    name, _, argument = text.partition(":")
    try:
        if text.startswith("@"):
            return Fault(text)
        if name in FAULTS and not argument:
            return Fault(name)
        if not 400 <= int(name) <= 599:
            raise ValueError
        retry_after = float(argument) if argument else None
        if retry_after is not None and not 0 <= retry_after < float("inf"):
            raise ValueError
    except ValueError:
        known = ", ".join(FAULTS)
        raise ConfigError(
            f"PLUMBLINE_GENERATOR_REPLAY_FAILURES: unknown failure {text!r} (known: {known}, or an "
            "HTTP status from 400 to 599, with :<seconds> for Retry-After; @<file>; * for all "
            "further requests)"
        ) from None
    if name == "429" and retry_after is None:
        retry_after = _DEFAULT_RETRY_AFTER
    return Fault(name, int(name), retry_after)


class FaultPlan:
    """Configured faults, one per request, followed by random errors.

    The random number is a hash of the seed, the request's identity and its number of repetitions.
    So runs with the same seed get the same errors, regardless of the order of their requests.
    """

    def __init__(self, faults: Sequence[Fault], *, error_rate: float, seed: int) -> None:
        self._configured = deque(faults)
        self._error_rate = error_rate
        self._seed = seed
        self._seen: Counter[str] = Counter()

    def next(self, identity: str) -> Fault:
        self._seen[identity] += 1
        if self._configured:
            first = self._configured[0]
            return first if first.lasting else self._configured.popleft()
        if _random(f"{self._seed}|{identity}|{self._seen[identity]}") < self._error_rate:
            return Fault("500", 500)
        return OK


def _random(text: str) -> float:
    """Derive a number from 0 (inclusive) to 1 (exclusive) from a text, deterministically."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
    # A float holds 53 bits exactly, without rounding up to 1.
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


# Faults on the wire


# Shares of the text and of its tokens that an answer with such a finish reason has.
UNFINISHED = {"abort": 0.5, "error": 0.5, "content_filter": 0.0}


def unfinished(answer: Answer, reason: str) -> Answer:
    """Truncate an answer as an engine does that gives up a request, still with HTTP 200."""
    share = UNFINISHED[reason]
    choices = [
        replace(
            choice,
            text=choice.text[: int(len(choice.text) * share)],
            tokens=int(choice.tokens * share),
            finish_reason=reason,
        )
        for choice in answer.choices
    ]
    return replace(answer, choices=choices)


def moved(body: AnswerBody, fault: str) -> object:
    """Put the text of an unstreamed chat completion where some servers put it."""
    for choice in body["choices"]:
        text = choice.get("message", {}).get("content", "")
        message: dict[str, object] = {"role": "assistant", "content": None}
        if fault == "reasoning":
            message["reasoning_content"] = text
        elif fault == "parts":
            message["content"] = [{"type": "text", "text": part} for part in text.partition("\n")]
        else:
            continue
        cast(dict[str, object], choice)["message"] = message
    return body


def close(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()


async def _reset(request: web.Request, _stopping: asyncio.Event) -> web.StreamResponse:
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        # With a linger time of zero, closing sends RST instead of FIN.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response()


async def _hang(request: web.Request, stopping: asyncio.Event) -> web.StreamResponse:
    await stopping.wait()
    return await _reset(request, stopping)


async def _empty(_request: web.Request, _stopping: asyncio.Event) -> web.StreamResponse:
    return web.json_response({"id": "empty", "object": "chat.completion", "choices": []})


async def _garbage(_request: web.Request, _stopping: asyncio.Event) -> web.StreamResponse:
    return web.Response(text="<html>upstream said something else</html>", content_type="text/html")


async def _too_long(_request: web.Request, _stopping: asyncio.Event) -> web.StreamResponse:
    message = (
        "This model's maximum context length is 4096 tokens. However, your request has 5000 input "
        "tokens. Please reduce the length of the input messages."
    )
    return RequestError(400, message, code="context_length_exceeded").response()


async def _no_quota(_request: web.Request, _stopping: asyncio.Event) -> web.StreamResponse:
    message = "You exceeded your current quota, please check your plan and billing details."
    return RequestError(429, message, code="insufficient_quota").response()


def described(path: str) -> web.Response:
    """The response that a JSON file describes."""
    described = json.loads(Path(path).read_text(encoding="utf-8"))
    body = described.get("body", "")
    return web.Response(
        status=described.get("status", 200),
        headers=described.get("headers"),
        text=body if isinstance(body, str) else json.dumps(body),
    )


RESPONSES: Mapping[str, Callable[[web.Request, asyncio.Event], Awaitable[web.StreamResponse]]] = {
    "reset": _reset,
    "hang": _hang,
    "empty": _empty,
    "garbage": _garbage,
    "too_long": _too_long,
    "insufficient_quota": _no_quota,
}
"""Faults that replace the answer. The event is set when the server stops, which ends a hang."""
