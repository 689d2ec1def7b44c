"""HTTP client for all replicas, with one unlimited connection pool."""

import io
from contextlib import AbstractAsyncContextManager

import aiohttp

_LARGE_BODY = 2**20
# Uvicorn closes idle connections after 5 s. A request sent at that moment would fail as if the
# replica had dropped the connection.
_KEEP_ALIVE_SECONDS = 3.0


class Connections:
    """HTTP session for all replicas; ``open`` and ``close`` it within the event loop.

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
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS),
            timeout=self._timeout,
            # The router reads the answers, so they must not be compressed.
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
        """Post JSON; ``total`` limits the seconds for the whole answer, instead of the defaults."""
        return self._opened.post(
            url,
            data=io.BytesIO(body) if len(body) > _LARGE_BODY else body,
            headers={"Content-Type": "application/json", **headers},
            timeout=aiohttp.ClientTimeout(total=total) if total else self._timeout,
            allow_redirects=False,
        )

    async def get(self, url: str, timeout: float) -> bytes:
        """Get the body of a successful response.

        Raises:
            aiohttp.ClientError, OSError: No successful response within ``timeout`` seconds.
        """
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self._opened.get(url, timeout=limit, raise_for_status=True) as response:
            return await response.read()

    @property
    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("Connections must be opened before use")
        return self._session
