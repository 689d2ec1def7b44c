"""Load balancing over generator servers: least in flight, circuit breaker, HTTP connections."""

import itertools
import resource
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp

from shared.address import Address
from shared.process_environment import uses_proxies

# Open files other than generator connections: Redis, data, logs, sandbox and aggregator clients.
_OTHER_FILES = 256
# After a minute of silence the kernel probes the peer every 15 s, and closes the connection after
# four unanswered probes. An answer may take an hour, but a dead machine must be detected.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Seconds without requests to a server that failed or is busy.

    Attributes:
        first: After the first failure; doubled with each further one.
        longest: Upper bound of the backoff.
        shortest_retry_after: Lower bound of a Retry-After, because 0 would be no pause.
        longest_retry_after: Upper bound of a Retry-After, in case the server's value is wrong.
    """

    first: float = 1.0
    longest: float = 30.0
    shortest_retry_after: float = 0.05
    longest_retry_after: float = 600.0

    def after(self, failures: int) -> float:
        """Exponential backoff after ``failures`` consecutive failures."""
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 10))

    def bounded(self, retry_after: float) -> float:
        return min(self.longest_retry_after, max(self.shortest_retry_after, retry_after))


class Endpoint:
    """A server with its circuit breaker.

    ``url`` is its base URL with ``/v1``, ``name`` its host and port, ``headers`` what carries user
    and password of the URL.

    A failure opens the circuit for a cool-down; then one request at a time probes the server until
    one succeeds.
    """

    def __init__(
        self, base_url: str, clock: Callable[[], float], cooldown: Cooldown | None = None
    ) -> None:
        address = Address.parse(base_url)
        self.url = address.url.removesuffix("/v1") + "/v1"
        self.headers = address.headers
        self.name = address.name
        self.in_flight = 0
        self.failures = 0
        self.last_used = 0
        self._rejections = 0
        self._open_until = 0.0
        self._busy_until = 0.0
        self._unreachable_since: float | None = None
        self._clock = clock
        self._cooldown = cooldown or Cooldown()

    @property
    def failing(self) -> bool:
        """Whether the circuit is open, or a probe of the server is in flight."""
        return self.failures > 0 and (self._clock() < self._open_until or self.in_flight > 0)

    @property
    def busy_for(self) -> float:
        """Seconds until the server accepts requests again."""
        return max(0.0, self._busy_until - self._clock())

    @property
    def available(self) -> bool:
        return not self.failing and self.busy_for == 0

    @property
    def unreachable_for(self) -> float:
        """Seconds since the first of the failed connections that no connection has followed."""
        since = self._unreachable_since
        return 0.0 if since is None else self._clock() - since

    def on_failure(self, *, unreachable: bool = False) -> None:
        """Open the circuit after a failed request, longer with each consecutive failure."""
        if not unreachable:
            self._unreachable_since = None
        elif self._unreachable_since is None:
            self._unreachable_since = self._clock()
        self.failures += 1
        self._open_until = self._clock() + self._cooldown.after(self.failures)

    def on_rejection(self, retry_after: float | None = None) -> None:
        """Pause a healthy but busy server for its Retry-After, else with exponential backoff."""
        self._unreachable_since = None
        # Concurrent requests that are rejected together count once.
        if not self.busy_for:
            self._rejections += 1
        if retry_after is None:
            pause = self._cooldown.after(self._rejections)
        else:
            pause = self._cooldown.bounded(retry_after)
        self._busy_until = max(self._busy_until, self._clock() + pause)

    def on_success(self) -> None:
        """Close the circuit."""
        self._unreachable_since = None
        self.failures = 0
        self._rejections = 0


class Endpoints:
    """Load balancer: fewest requests in flight first, round-robin among equals.

    An unavailable server gets a request only if there is no other.
    """

    def __init__(
        self,
        base_urls: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
        cooldown: Cooldown | None = None,
    ) -> None:
        if not base_urls:
            raise ValueError("no generator URL")
        endpoints = [Endpoint(url, clock, cooldown) for url in base_urls]
        # Duplicate URLs are one server.
        self._endpoints = list({endpoint.url: endpoint for endpoint in endpoints}.values())
        self._turn = itertools.count(1)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._endpoints)

    @property
    def all_failing(self) -> bool:
        return all(endpoint.failing for endpoint in self._endpoints)

    def unreachable_for(self) -> float:
        """Seconds for which no server could be connected to."""
        return min(endpoint.unreachable_for for endpoint in self._endpoints)

    def busy_for(self) -> float:
        """Seconds until a server accepts a request; failing servers count only if all fail."""
        healthy = [endpoint for endpoint in self._endpoints if not endpoint.failing]
        return min(endpoint.busy_for for endpoint in healthy or self._endpoints)

    @contextmanager
    def acquire(self) -> Iterator[Endpoint]:
        """Choose the server for a request, and count the request on it."""
        endpoint = min(self._endpoints, key=_load)
        endpoint.last_used = next(self._turn)
        endpoint.in_flight += 1
        try:
            yield endpoint
        finally:
            endpoint.in_flight -= 1


def _load(endpoint: Endpoint) -> tuple[bool, int, int, int]:
    # Unavailable servers are ordered by failures, because a dead one has few requests in flight.
    available = endpoint.available
    failures = 0 if available else endpoint.failures
    return not available, failures, endpoint.in_flight, endpoint.last_used


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
    urls: Iterable[str],
    headers: dict[str, str],
    request_timeout: float,
    connect_timeout: float = 30.0,
) -> aiohttp.ClientSession:
    """Open an HTTP client of servers without a limit on connections; timeouts are seconds."""
    return aiohttp.ClientSession(
        # The admission gate limits requests; aiohttp's default would allow only 100 connections.
        connector=aiohttp.TCPConnector(limit=0, socket_factory=keepalive_socket),
        timeout=aiohttp.ClientTimeout(total=request_timeout, sock_connect=connect_timeout),
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
