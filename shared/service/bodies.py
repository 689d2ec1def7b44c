"""Request bodies, read up to a limit; large ones are decoded beside the event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from aiohttp import web

# Bytes from which a body is decoded beside the event loop: below, handing it over costs more.
_LARGE = 64 * 1024

T = TypeVar("T")


class BodyTooLargeError(Exception):
    """A body exceeds its limit; ``setting`` is what raises the limit, if anything."""

    def __init__(self, limit: int, setting: str = "") -> None:
        raised_by = f" ({setting})" if setting else ""
        super().__init__(f"the request is larger than {limit / 2**20:g} MiB{raised_by}")


async def read_body(
    request: web.Request, decode: Callable[[bytes], T], *, limit: int, setting: str = ""
) -> T:
    """Read and decode a request's body.

    Args:
        request: The request.
        decode: Parses the body; called in a thread if it is large.
        limit: Its largest size in bytes.
        setting: Name of the variable that sets the limit, for the message.

    Raises:
        BodyTooLargeError: The body is too large.
    """
    if (request.content_length or 0) > limit:
        raise BodyTooLargeError(limit, setting)
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise BodyTooLargeError(limit, setting)
    if len(body) < _LARGE:
        return decode(bytes(body))
    return await asyncio.to_thread(decode, bytes(body))
