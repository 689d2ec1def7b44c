"""Is everything there that a run needs? Asked before anything is written."""

from collections.abc import Sequence

import aiohttp

from shared.errors import ServiceError

_TIMEOUT = 10.0


async def check_sandboxes(urls: Sequence[str]) -> None:
    """Ping every sandbox.

    Raises:
        ServiceError: One does not answer as SandboxFusion does.
    """
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT)) as session:
        for url in urls:
            await _ping(session, url.rstrip("/").removesuffix("/run_code"))


async def _ping(session: aiohttp.ClientSession, url: str) -> None:
    advice = "start it, set sandbox.url (or SANDBOX_URLS), or use --embedded"
    try:
        async with session.get(f"{url}/v1/ping") as response:
            body = await response.text()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise ServiceError(f"the sandbox at {url} is not reachable: {reason}; {advice}") from None
    if response.status != 200 or "pong" not in body:
        raise ServiceError(
            f"what answers at {url} is no SandboxFusion (GET /v1/ping gave {response.status}); "
            f"{advice}"
        )
