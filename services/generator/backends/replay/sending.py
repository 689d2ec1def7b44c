"""How an answer, or the failure instead of it, goes over the wire."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from aiohttp import web

from services.generator.protocol import Answer, RequestError

_PIECE = 16
"""Characters of text in one chunk of a stream."""


async def send_body(
    request: web.Request, answer: Answer, *, seconds: float, cut: bool
) -> web.StreamResponse:
    """Answer in one piece after ``seconds``; ``cut`` ends the connection in the middle of it."""
    await asyncio.sleep(seconds)
    if not cut:
        return web.json_response(answer.body())
    body = json.dumps(answer.body()).encode()
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(body)
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    _close(request)
    return response


async def send_stream(
    request: web.Request, answer: Answer, *, seconds: float, include_usage: bool, cut: bool
) -> web.StreamResponse:
    """Answer as server-sent events spread over ``seconds``; ``cut`` stops half-way."""
    chunks = list(answer.chunks(_PIECE, include_usage=include_usage))
    sent = chunks[: len(chunks) // 2] if cut else chunks
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
    )
    await response.prepare(request)
    for chunk in sent:
        await asyncio.sleep(seconds / len(chunks))
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
    if cut:
        _close(request)
        return response
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def aborted(answer: Answer) -> Answer:
    """The answer as an engine gives it when its requests are aborted: cut, yet with HTTP 200."""
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


async def _reset(request: web.Request, _stopping: asyncio.Event) -> web.StreamResponse:
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        # With no time to linger, closing sends RST instead of FIN.
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


INSTEAD_OF_AN_ANSWER: Mapping[
    str, Callable[[web.Request, asyncio.Event], Awaitable[web.StreamResponse]]
] = {
    "reset": _reset,
    "hang": _hang,
    "empty": _empty,
    "garbage": _garbage,
    "too_long": _too_long,
}


def _close(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()
