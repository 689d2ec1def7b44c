"""A replica's stream on its way to the client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import aiohttp

from services.generator.router.answers import Usage, usage_of
from services.generator.router.client_stream import ClientStream
from services.generator.router.events import (
    EventSplitter,
    Trouble,
    is_done,
    is_hollow,
    sound_part,
)
from services.generator.router.failures import AttemptError, Reason
from services.generator.router.lease import Lease

_MOST_HELD = 2**16
_LAST_BYTES = 1.0


async def relay(
    upstream: aiohttp.ClientResponse,
    lease: Lease,
    client: ClientStream,
    start: Callable[[], Awaitable[None]],
) -> Usage | None:
    """Pass whole events on as they come, ``start`` being called before the first that says much.

    Raises:
        AttemptError: The stream broke, or the replica gave up. ``client.started`` tells whether
            another one can take over.
        ClientGoneError: The client does not listen any more.
        aiohttp.ClientError: The connection to the replica broke.
    """
    held, usage, done = b"", None, False
    async for block, trouble in _blocks(upstream):
        if block:
            lease.progressed(block.count(b"data:"))
            usage = usage_of(block) or usage
            held += block
            if client.started or len(held) > _MOST_HELD or not is_hollow(held):
                if not client.started:
                    await start()
                await client.write(held)
                held = b""
        if trouble:
            raise AttemptError(trouble.reason, trouble.message)
        if done := is_done(block):
            break
    if not done:
        raise AttemptError(Reason.BROKEN_STREAM, "the replica's stream ended without [DONE]")
    client.complete = True
    await _to_the_end(upstream)
    await client.end()
    return usage


async def _to_the_end(upstream: aiohttp.ClientResponse) -> None:
    """Leave a connection that can be used again, where its last bytes come at once."""
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(_LAST_BYTES):
            await upstream.content.read()


async def _blocks(
    upstream: aiohttp.ClientResponse,
) -> AsyncIterator[tuple[bytes, Trouble | None]]:
    splitter = EventSplitter()
    async for data in upstream.content.iter_any():
        if block := splitter.feed(data):
            yield sound_part(block)
