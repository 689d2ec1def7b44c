"""Request bodies: bounded reading, and decoding beside the event loop.

All bodies of a service share a limit of memory. Large ones are decoded in a thread.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from aiohttp import web

# Bytes from which a body is decoded beside the event loop: below, handing it over costs more.
_LARGE = 64 * 1024
_RETRY_AFTER = 5

T = TypeVar("T")


class BodyTooLargeError(Exception):
    """A body exceeds the limit of one body; ``setting`` is what raises the limit, if anything."""

    def __init__(self, limit: int, setting: str = "") -> None:
        raised_by = f" ({setting})" if setting else ""
        super().__init__(f"the request is larger than {limit / 2**20:g} MiB{raised_by}")


class BodiesFullError(Exception):
    """The bodies of all requests together exceed their limit.

    Attributes:
        retry_after: Seconds after which to try again.
    """

    retry_after = _RETRY_AFTER

    def __init__(self) -> None:
        super().__init__("the requests in flight hold too much memory; retry later")


class Bodies:
    """Backpressure by memory: limits each request body, and the sum of all bodies held at once.

    Large bodies are decoded one at a time in a thread, so that the event loop goes on meanwhile.
    """

    def __init__(self, *, max_body: int, max_held: int, setting: str = "") -> None:
        """Set the limits.

        Args:
            max_body: Bytes of one body.
            max_held: Bytes of all bodies together.
            setting: Name of the variable that sets ``max_body``.
        """
        self._setting = setting
        self._max_body = max_body
        self._max_held = max_held
        self._held = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bodies")

    @asynccontextmanager
    async def read(self, request: web.Request, decode: Callable[[bytes], T]) -> AsyncIterator[T]:
        """Read and decode a request's body, which counts as held until the context exits.

        Bytes count when they arrive: what a client only announces keeps no other client out.

        Raises:
            BodyTooLargeError: The body is too large.
            BodiesFullError: Too many bytes are already held.
        """
        if (request.content_length or 0) > self._max_body:
            raise BodyTooLargeError(self._max_body, self._setting)
        body = bytearray()
        size = 0
        try:
            while chunk := await request.content.readany():
                size += len(chunk)
                self._held += len(chunk)
                self._check(size)
                body += chunk
            value = await self._decoded(body, decode)
            del chunk
            body.clear()
            yield value
        finally:
            self._held -= size
            body.clear()  # an error keeps its frames, and so the body, until a garbage collection

    def _check(self, size: int) -> None:
        if size > self._max_body:
            raise BodyTooLargeError(self._max_body, self._setting)
        if self._held > self._max_held:
            raise BodiesFullError

    async def _decoded(self, body: bytearray, decode: Callable[[bytes], T]) -> T:
        if len(body) < _LARGE:
            return decode(bytes(body))
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: decode(bytes(body)))
