"""Fetching the engines' metrics while somebody waits for ours."""

import asyncio
from collections.abc import Sequence

import aiohttp

from services.generator.router.connections import Connections
from services.generator.router.engine import Engine
from services.generator.router.engine_metrics import merge


async def scrape(connections: Connections, engines: Sequence[Engine], timeout: float) -> str:
    """All engines' metrics; one that does not answer within ``timeout`` seconds is left out."""
    texts = await asyncio.gather(*(_fetch(connections, one, timeout) for one in engines))
    found = {str(one.rank): text for one, text in zip(engines, texts, strict=True)}
    # Thousands of lines: requests must go on meanwhile.
    return await asyncio.to_thread(merge, found)


async def _fetch(connections: Connections, engine: Engine, timeout: float) -> str:
    try:
        body = await connections.get(f"{engine.url}/metrics", timeout)
    except (aiohttp.ClientError, OSError):
        return ""
    return body.decode("utf-8", "replace")
