"""Bodies of requests and of other servers' answers, read up to a limit."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # takes long to import
    import aiohttp
    from aiohttp import web

# Bytes from which a body is decoded beside the event loop: below, handing it over costs more.
_LARGE = 64 * 1024

T = TypeVar("T")


class BodyTooLargeError(Exception):
    """A request's body exceeds its limit."""


class AnswerTooLargeError(ValueError):
    """An answer exceeds its limit."""


async def read_body(
    request: "web.Request", decode: Callable[[bytes], T], *, limit: int, setting: str = ""
) -> T:
    """Read a request's body of at most ``limit`` bytes and decode it, in a thread if it is large.

    Raises:
        BodyTooLargeError: It is too large; the message names the ``setting`` of the limit, if any.
    """
    too_large = (request.content_length or 0) > limit
    if too_large or (body := await _read(request.content, limit)) is None:
        named = f" ({setting})" if setting else ""
        raise BodyTooLargeError(f"the request is larger than {limit / 2**20:g} MiB{named}")
    return decode(body) if len(body) < _LARGE else await asyncio.to_thread(decode, body)


async def read_answer(response: "aiohttp.ClientResponse", limit: int) -> bytes:
    """Read a whole answer; the connection is closed if it has more than ``limit`` bytes.

    Raises:
        AnswerTooLargeError: It is too large.
        aiohttp.ClientError: The connection broke.
    """
    body = await _read(response.content, limit)
    if body is None:
        response.close()
        raise AnswerTooLargeError(f"the answer is larger than {limit / 2**20:g} MiB")
    return body


async def _read(content: "aiohttp.StreamReader", limit: int) -> bytes | None:
    """Read a whole body; None if it has more than ``limit`` bytes."""
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)
