"""Bounded reading of what other servers answer."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp  # takes long to import


class AnswerTooLargeError(ValueError):
    """An answer exceeds its limit."""


async def read_answer(response: "aiohttp.ClientResponse", limit: int) -> bytes:
    """Read a whole answer; the connection is closed if it has more than ``limit`` bytes.

    Raises:
        AnswerTooLargeError: It is too large.
        aiohttp.ClientError: The connection broke.
    """
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            response.close()
            raise AnswerTooLargeError(f"the answer is larger than {limit / 2**20:g} MiB")
    return bytes(body)
