"""The HTTP client of all replicas."""

import io
from contextlib import AbstractAsyncContextManager

import aiohttp

_LARGE = 2**20
# Shorter than the five seconds after which uvicorn closes a connection that is not used: a
# request sent into that moment would look like a replica that dropped it.
_KEEP_ALIVE = 3.0


class Connections:
    """One session without a limit of its own; ``open`` and ``close`` it within the event loop.

    Args:
        connect_timeout: Seconds to establish a connection.
        progress_timeout: Seconds without a byte of an answer.
    """

    def __init__(self, *, connect_timeout: float, progress_timeout: float) -> None:
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=connect_timeout, sock_read=progress_timeout
        )
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE),
            timeout=self._timeout,
            # An answer is looked into, so it must not come compressed.
            headers={"Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def post(
        self, url: str, body: bytes, headers: dict[str, str], *, total: float | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send JSON; ``total`` seconds for all of the answer, in place of the usual limits."""
        return self._opened.post(
            url,
            data=io.BytesIO(body) if len(body) > _LARGE else body,
            headers={"Content-Type": "application/json", **headers},
            timeout=aiohttp.ClientTimeout(total=total) if total else self._timeout,
            allow_redirects=False,
        )

    async def get(self, url: str, timeout: float) -> bytes:
        """The body of an answer with status 200.

        Raises:
            aiohttp.ClientError, OSError: No such answer within ``timeout`` seconds.
        """
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self._opened.get(url, timeout=limit, raise_for_status=True) as response:
            return await response.read()

    @property
    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("Connections are used before they were opened")
        return self._session
