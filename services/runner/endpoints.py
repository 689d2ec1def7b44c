"""Generator servers that take turns, with pauses after failures; HTTP connections."""

import itertools
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
# After a minute of silence the kernel probes the peer every 15 s, and closes the connection after
# four unanswered probes. An answer may take an hour, but a dead machine must be detected.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
# Seconds without requests to a server that failed, at most.
_LONGEST_PAUSE = 10.0
# Bounds of a Retry-After: 0 would be no pause, and more than the longest is a refusal.
_SHORTEST_RETRY_AFTER, _LONGEST_RETRY_AFTER = 0.05, 600.0


class Endpoint:
    """A server, and the time until which it gets no request.

    Attributes:
        url: Its base URL with ``/v1``.
        name: Its host and port.
        headers: User and password of the URL, if it has them.
        failures: Consecutive failures; concurrent requests that fail together count once.
        refuses: Its last answer was to come back much later, or never.
    """

    def __init__(self, base_url: str, clock: Callable[[], float], backoff: float) -> None:
        address = Address.parse(base_url)
        self.url = address.url.removesuffix("/v1") + "/v1"
        self.headers = address.headers
        self.name = address.name
        self.failures = 0
        self.refuses = False
        self.last_used = 0
        self._closed_until = 0.0
        self._clock = clock
        self._backoff = backoff

    @property
    def closed_for(self) -> float:
        """Seconds until the server may get a request."""
        return max(0.0, self._closed_until - self._clock())

    def pause(self, retry_after: float | None = None) -> bool:
        """Pause for a Retry-After, else longer with each consecutive failure.

        Returns:
            Whether it did not pause already.
        """
        began = not self.closed_for
        self.failures += began
        self.refuses = retry_after is not None and retry_after > _LONGEST_RETRY_AFTER
        if retry_after is None or self.refuses:
            seconds = min(_LONGEST_PAUSE, self._backoff * 2.0 ** min(self.failures - 1, 10))
        else:
            seconds = max(_SHORTEST_RETRY_AFTER, retry_after)
        if began or retry_after is not None:
            self._closed_until = max(self._closed_until, self._clock() + seconds)
        return began

    def on_success(self) -> None:
        self.failures, self.refuses = 0, False


class Endpoints:
    """Servers that take turns; one that pauses gets a request only if there is no other."""

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
    def failures(self) -> int:
        """Consecutive failures of the server that has the fewest."""
        return min(endpoint.failures for endpoint in self._endpoints)

    @property
    def all_refuse(self) -> bool:
        return all(endpoint.refuses for endpoint in self._endpoints)

    def closed_for(self) -> float:
        """Seconds until a server may get a request."""
        return min(endpoint.closed_for for endpoint in self._endpoints)

    def next(self) -> Endpoint:
        """Choose the server for a request."""
        endpoint = min(self._endpoints, key=lambda one: (one.closed_for > 0, one.last_used))
        endpoint.last_used = next(self._turn)
        return endpoint


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
        connector=aiohttp.TCPConnector(limit=0, socket_factory=_keepalive_socket),
        timeout=aiohttp.ClientTimeout(total=request_timeout, sock_connect=_CONNECT),
        headers=headers,
        trust_env=uses_proxies(urls),
    )


def _keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not every platform has these options
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return opened
