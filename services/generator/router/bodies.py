"""Request bodies, all of which together stay below a limit."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from services.generator.protocol import RequestError

_COME_AGAIN = 5


class Bodies:
    """One body has at most ``largest`` bytes, all that are held at a time ``together``."""

    def __init__(self, *, largest: int, together: int) -> None:
        self._largest = largest
        self._together = together
        self._held = 0

    @asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytes]:
        """Read a request's body, which counts as held within the ``async with``.

        Raises:
            RequestError: 413, it is too large; 429, too much is held already.
        """
        held = request.content_length or 0
        if held > self._largest:
            raise self._too_large()
        self._held += held
        try:
            self._check()
            try:
                body = await request.read()
            except web.HTTPRequestEntityTooLarge:
                raise self._too_large() from None
            # One sent in chunks does not tell its length beforehand.
            self._held += len(body) - held
            held = len(body)
            self._check()
            yield body
        finally:
            self._held -= held

    def _check(self) -> None:
        if self._held > self._together:
            message = "the requests at work are too large together; come again later"
            raise RequestError(429, message, code="queue_full", retry_after=_COME_AGAIN)

    def _too_large(self) -> RequestError:
        limit = self._largest / 2**20
        return RequestError(413, f"the request is larger than {limit:g} MiB", code="too_large")
