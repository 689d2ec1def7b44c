"""Generator servers that take turns, with pauses after failures; HTTP connections."""

import itertools
import math
import resource
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import aiohttp

from shared.address import Address
from shared.process_environment import uses_proxies

# Open files other than generator connections: Redis, data, logs, sandbox and aggregator clients.
_OTHER_FILES = 256
# Seconds to connect to a server.
_CONNECT = 30.0
# Seconds after which another probe follows one without an answer, which may take an hour.
_PROBE = 5.0
# After a minute of silence the kernel probes the peer every 15 s, and closes the connection after
# four unanswered probes. An answer may take an hour, but a dead machine must be detected.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


# Seconds without requests to a server that is busy, and to one that may be there again, at most.
_LONGEST_BUSY, _LONGEST_FAILING = 30.0, 10.0
# Bounds of a Retry-After: 0 would be no pause, and more than the longest is a refusal.
_SHORTEST_RETRY_AFTER, _LONGEST_RETRY_AFTER = 0.05, 600.0


class Endpoint:
    """A server, and the time until which it gets no request.

    ``url`` is its base URL with ``/v1``, ``name`` its host and port, ``headers`` what carries user
    and password of the URL. ``refuses`` says that its last answer was to come back much later, or
    never. A server that failed pauses, and then gets one request at a time until one succeeds.
    """

    def __init__(self, base_url: str, clock: Callable[[], float], backoff: float) -> None:
        address = Address.parse(base_url)
        self.url = address.url.removesuffix("/v1") + "/v1"
        self.headers = address.headers
        self.name = address.name
        self.failures = 0
        self.last_used = 0
        self.refuses = False
        self._rejections = 0
        self._probing = False
        self._closed_until = 0.0
        self._clock = clock
        self._backoff = backoff

    @property
    def closed_for(self) -> float:
        """Seconds until the server may get a request."""
        return max(0.0, self._closed_until - self._clock())

    @property
    def failing(self) -> bool:
        """Whether it has failed and pauses, or was just sent a probe."""
        return self.failures > 0 and self.closed_for > 0

    def on_send(self) -> None:
        """Hold further requests back behind a probe."""
        if self.failures and not self.closed_for:
            self._probing = True
            self._closed_until = self._clock() + _PROBE

    def on_failure(self) -> bool:
        """Pause after a failed request, longer with each consecutive failure.

        Returns:
            Whether it is the first failure.
        """
        # Concurrent requests that fail together count once.
        if self.failing and not self._probing:
            return False
        self._probing = False
        self.failures += 1
        pause = min(_LONGEST_FAILING, self._after(self.failures))
        self._closed_until = self._clock() + pause
        return self.failures == 1

    def on_rejection(self, retry_after: float | None = None) -> None:
        """Pause a busy server for its Retry-After, else with exponential backoff."""
        self.failures = 0
        self.refuses = (retry_after or 0.0) > _LONGEST_RETRY_AFTER
        # Concurrent requests that are rejected together count once.
        if not self.closed_for:
            self._rejections += 1
        if retry_after is None or retry_after == math.inf:
            self._pause(min(_LONGEST_BUSY, self._after(self._rejections)))
        else:
            self._pause(min(_LONGEST_RETRY_AFTER, max(_SHORTEST_RETRY_AFTER, retry_after)))

    def on_success(self) -> None:
        """Let all requests through, but for those of a busy server's pause."""
        if self.failures:
            self._closed_until = 0.0
        self.failures = self._rejections = 0
        self.refuses = self._probing = False

    def _after(self, failures: int) -> float:
        return self._backoff * 2.0 ** min(failures - 1, 10)

    def _pause(self, seconds: float) -> None:
        self._closed_until = max(self._closed_until, self._clock() + seconds)


class Endpoints:
    """Servers that take turns; one that pauses gets a request only if there is no other.

    While all pause, :meth:`closed_for` holds the requests back.
    """

    def __init__(
        self,
        base_urls: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
        backoff: float = 1.0,
    ) -> None:
        if not base_urls:
            raise ValueError("no generator URL")
        endpoints = [Endpoint(url, clock, backoff) for url in base_urls]
        # Duplicate URLs are one server.
        self._endpoints = list({endpoint.url: endpoint for endpoint in endpoints}.values())
        self._turn = itertools.count(1)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._endpoints)

    @property
    def all_failing(self) -> bool:
        return all(endpoint.failing for endpoint in self._endpoints)

    @property
    def all_refuse(self) -> bool:
        return all(endpoint.refuses for endpoint in self._endpoints)

    def probing(self) -> bool:
        """Whether the next request is a probe, because all servers have failed."""
        return all(endpoint.failures > 0 for endpoint in self._endpoints)

    def closed_for(self) -> float:
        """Seconds until a server may get a request."""
        return min(endpoint.closed_for for endpoint in self._endpoints)

    def next(self) -> Endpoint:
        """Choose the server for a request."""
        endpoint = min(self._endpoints, key=_turn)
        endpoint.last_used = next(self._turn)
        endpoint.on_send()
        return endpoint


def _turn(endpoint: Endpoint) -> tuple[bool, int, int]:
    closed = endpoint.closed_for > 0
    return closed, endpoint.failures if closed else 0, endpoint.last_used


# HTTP connections


def allow_connections(wanted: int) -> int:
    """Raise the limit of open files (RLIMIT_NOFILE) for ``wanted`` connections.

    Returns:
        The number of connections that the limit permits.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    return max(1, min(wanted, allowed - _OTHER_FILES))


def open_session(
    urls: Iterable[str], headers: dict[str, str], request_timeout: float
) -> aiohttp.ClientSession:
    """Open an HTTP client of servers without a limit on connections; the timeout is in seconds."""
    return aiohttp.ClientSession(
        # The admission gate limits requests; aiohttp's default would allow only 100 connections.
        connector=aiohttp.TCPConnector(limit=0, socket_factory=keepalive_socket),
        timeout=aiohttp.ClientTimeout(total=request_timeout, sock_connect=_CONNECT),
        headers=headers,
        trust_env=uses_proxies(urls),
    )


def keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Create a socket with TCP keep-alive."""
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not every platform has these options
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return opened
