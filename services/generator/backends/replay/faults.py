"""Fault injection: HTTP errors, connection resets, hangs and damaged answers."""

import asyncio
import json
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aiohttp import web

from services.generator.protocol import Answer, RequestError
from shared.errors import ConfigError

FAULTS = {
    "ok": "no fault",
    "reset": "the connection is reset",
    "hang": "no answer until the server stops",
    "abort": 'HTTP 200 with a cut text and finish_reason "abort"',
    "empty": "HTTP 200 with no choices",
    "garbage": "HTTP 200 with a body that is not JSON",
    "truncated": "a body that ends in the middle",
    "too_long": "HTTP 400 as vLLM answers a prompt that is too long",
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
    """Parse a list such as ``500``, ``429:0.1`` (with Retry-After), ``reset*`` (lasting).

    Raises:
        ConfigError: An unknown name.
    """
    return [replace(_parse(name.removesuffix("*")), lasting=name.endswith("*")) for name in names]


def _parse(text: str) -> Fault:
    if text.startswith("@"):
        return Fault(text)
    name, _, argument = text.partition(":")
    try:
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
    """Faults for the next requests, one each; the last of them for all further ones if it lasts."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = deque(faults)

    def next(self) -> Fault:
        if not self._faults:
            return OK
        return self._faults[0] if self._faults[0].lasting else self._faults.popleft()


# Faults on the wire


def aborted(answer: Answer) -> Answer:
    """Truncate an answer as an engine does that aborts its requests, still with HTTP 200."""
    choices = [
        replace(
            choice,
            text=choice.text[: len(choice.text) // 2],
            tokens=choice.tokens // 2,
            finish_reason="abort",
        )
        for choice in answer.choices
    ]
    return replace(answer, choices=choices)


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


def described(path: str) -> web.Response:
    """The response that a JSON file describes."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    body = found.get("body", "")
    text = body if isinstance(body, str) else json.dumps(body)
    return web.Response(status=found.get("status", 200), headers=found.get("headers"), text=text)


RESPONSES: Mapping[str, Callable[[web.Request, asyncio.Event], Awaitable[web.StreamResponse]]] = {
    "reset": _reset,
    "hang": _hang,
    "empty": _empty,
    "garbage": _garbage,
    "too_long": _too_long,
}
"""Faults that replace the answer. The event is set when the server stops, which ends a hang."""
