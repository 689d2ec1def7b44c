"""Streaming relay: server-sent events from a replica to the client."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

import aiohttp
from aiohttp import web

from services.generator.router.replica import AttemptError, FailureReason, ReplicaSlot
from services.generator.router.responses import Usage, find_usage

# Last bytes of a stream, which have its usage and its end.
_END_BYTES = 2**14
_LAST_BYTES_SECONDS = 1.0
# For the error event, because the client may have stopped reading.
_FAIL_SECONDS = 5.0


class ClientGoneError(Exception):
    """The client has closed the connection, or has stopped reading."""


class ClientStream:
    """Streamed response to the client.

    Nothing is sent before :meth:`start`, so until then another replica can take over.
    :func:`relay_stream` sets ``complete`` once the whole answer has been written.
    """

    def __init__(self, request: web.Request) -> None:
        self.complete = False
        self._stuck = False
        self._request = request
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
            async with asyncio.timeout(_FAIL_SECONDS):
                if not self.complete:
                    # The stream may have broken within an event.
                    await self.write(f"\n\ndata: {json.dumps({'error': error})}\n\n".encode())
                await self.end()
        except TimeoutError:
            raise ClientGoneError from None


async def relay_stream(
    upstream: aiohttp.ClientResponse,
    slot: ReplicaSlot,
    client: ClientStream,
    start: Callable[[], Awaitable[None]],
) -> Usage | None:
    """Forward a stream as it arrives; awaits ``start`` before its first bytes.

    Raises:
        AttemptError: The stream ended early. Another replica can take over unless
            ``client.started``.
        ClientGoneError: The client has disconnected.
        aiohttp.ClientError: The connection to the replica broke.
    """
    end = b"\n"
    async for data in upstream.content.iter_any():
        slot.engine.record_token()
        if not client.started:
            await start()
        await client.write(data)
        end = (end + data)[-_END_BYTES:]
        if end.rstrip().endswith(b"\ndata: [DONE]"):
            client.complete = True
            await _read_rest(upstream)
            await client.end()
            return find_usage(end)
    message = "the replica's stream ended without [DONE]"
    raise AttemptError(FailureReason.BROKEN_STREAM, message)


async def _read_rest(upstream: aiohttp.ClientResponse) -> None:
    """Read the last bytes, if they arrive soon, so that the connection can be reused."""
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(_LAST_BYTES_SECONDS):
            await upstream.content.read()
