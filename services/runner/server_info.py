"""What a generator says of itself, beyond OpenAI's API: ``GET /info`` beside its ``/v1``."""

import json
from typing import Any

import aiohttp

from services.runner.answers import load_json

# Of one server a JSON object, of several one each by URL; None where a server says nothing.
ServerInfo = dict[str, Any] | None

_TIMEOUT = 10.0
_LARGEST = 2**20


async def server_info(session: aiohttp.ClientSession, base_url: str) -> ServerInfo:
    """Ask a server; None where it has no such page, or none with a JSON object.

    Args:
        session: With the headers that the server wants.
        base_url: Its base URL with ``/v1``.
    """
    url = f"{base_url.removesuffix('/v1')}/info"
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=_TIMEOUT)) as response:
            body = await _bounded(response) if response.status == 200 else b""
    except (aiohttp.ClientError, OSError):  # TimeoutError among them
        return None
    return _object(body)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _LARGEST:
            return b""
    return body


def _object(body: bytes) -> ServerInfo:
    try:
        document = load_json(body)
        # It is to be written again, where NaN or a nesting beyond reason would be an error.
        json.dumps(document, indent=2, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
