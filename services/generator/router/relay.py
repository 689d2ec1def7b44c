"""Streaming relay: server-sent events from a replica to the client."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import aiohttp
from aiohttp import web

from services.generator.router.replica import AttemptError, FailureReason, ReplicaSlot
from services.generator.router.responses import (
    EventSplitter,
    Usage,
    find_usage,
    has_no_content,
    is_done,
    split_at_failure,
)

_MAX_HELD = 2**16
_LAST_BYTES_SECONDS = 1.0
_FAIL_SECONDS = 5.0


class ClientGoneError(Exception):
    """The client has closed the connection, or has stopped reading."""


class ClientStream:
    """Streamed response to the client.

    Nothing is sent before :meth:`start`, so until then another replica can take over.
    :func:`relay_stream` sets ``complete`` once the whole answer has been written.

    Args:
        request: The client's request.
        fail_timeout: Seconds for :meth:`fail`, because the client may have stopped reading.
    """

    def __init__(self, request: web.Request, fail_timeout: float = _FAIL_SECONDS) -> None:
        self.complete = False
        self._stuck = False
        self._request = request
        self._fail_timeout = fail_timeout
        self._response: web.StreamResponse | None = None

    @property
    def started(self) -> bool:
        return self._response is not None

    @property
    def response(self) -> web.StreamResponse:
        if self._response is None:
            raise RuntimeError("the stream has not been started")
        return self._response

    async def start(self, headers: dict[str, str]) -> None:
        self._response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",  # proxies must not buffer events
                **headers,
            }
        )
        try:
            await self._response.prepare(self._request)
        except ConnectionError:
            raise ClientGoneError from None

    async def write(self, data: bytes) -> None:
        self._stuck = True
        try:
            await self.response.write(data)
        except ConnectionError:
            raise ClientGoneError from None
        self._stuck = False

    async def end(self) -> None:
        try:
            await self.response.write_eof()
        except ConnectionError:
            raise ClientGoneError from None

    def drop(self) -> web.StreamResponse:
        """Abort the connection of a client that has disconnected or stopped reading."""
        if self._request.transport is not None:
            self._request.transport.abort()
        return self._response or web.Response(status=499)

    async def fail(self, message: str, code: str) -> None:
        """End the stream with an error event, and without ``[DONE]``.

        Raises:
            ClientGoneError: The client has disconnected, or has stopped reading.
        """
        if self._stuck:
            # The previous write timed out, because the client does not read.
            raise ClientGoneError
        error = {"message": message, "type": "server_error", "code": code}
        try:
            async with asyncio.timeout(self._fail_timeout):
                if not self.complete:
                    await self.write(f"data: {json.dumps({'error': error})}\n\n".encode())
                await self.end()
        except TimeoutError:
            raise ClientGoneError from None


async def relay_stream(
    upstream: aiohttp.ClientResponse,
    slot: ReplicaSlot,
    client: ClientStream,
    start: Callable[[], Awaitable[None]],
) -> Usage | None:
    """Forward whole events as they arrive; awaits ``start`` before the first event with content.

    Raises:
        AttemptError: The stream broke or reported a failure. Another replica can take over unless
            ``client.started``.
        ClientGoneError: The client has disconnected.
        aiohttp.ClientError: The connection to the replica broke.
    """
    held, usage, done = b"", None, False
    async for block, failure in _blocks(upstream):
        if block:
            slot.progressed(block.count(b"data:"))
            usage = find_usage(block) or usage
            held += block
            if client.started or len(held) > _MAX_HELD or not has_no_content(held):
                if not client.started:
                    await start()
                await client.write(held)
                held = b""
        if failure:
            raise failure
        if done := is_done(block):
            break
    if not done:
        message = "the replica's stream ended without [DONE]"
        raise AttemptError(FailureReason.BROKEN_STREAM, message)
    client.complete = True
    await _read_rest(upstream)
    await client.end()
    return usage


async def _read_rest(upstream: aiohttp.ClientResponse) -> None:
    """Read the last bytes, if they arrive soon, so that the connection can be reused."""
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(_LAST_BYTES_SECONDS):
            await upstream.content.read()


async def _blocks(
    upstream: aiohttp.ClientResponse,
) -> AsyncIterator[tuple[bytes, AttemptError | None]]:
    splitter = EventSplitter()
    async for data in upstream.content.iter_any():
        if block := splitter.feed(data):
            yield split_at_failure(block)
