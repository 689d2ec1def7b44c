"""The client's side of a streamed answer."""

import asyncio
import json

from aiohttp import web

from services.generator.router.failures import ClientGoneError

# Seconds for a client that may have stopped reading.
_LAST_WORDS = 5.0


class ClientStream:
    """Nothing is sent before :meth:`start`; until then another replica can take over.

    ``complete`` is to be set when all of the answer has been written.
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
                "X-Accel-Buffering": "no",  # a proxy in between must not collect events
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
        """Break the connection to a client that is gone, or does not read."""
        if self._request.transport is not None:
            self._request.transport.abort()
        return self._response or web.Response(status=499)

    async def fail(self, message: str, code: str) -> None:
        """End with an event that no client takes for an answer, and without ``[DONE]``.

        Raises:
            ClientGoneError: The client has left, or does not read.
        """
        if self._stuck:
            # The write that was given up waited for a client that does not read.
            raise ClientGoneError
        error = {"message": message, "type": "server_error", "code": code}
        try:
            async with asyncio.timeout(_LAST_WORDS):
                if not self.complete:
                    await self.write(f"data: {json.dumps({'error': error})}\n\n".encode())
                await self.end()
        except TimeoutError:
            raise ClientGoneError from None
