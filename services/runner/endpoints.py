"""Load balancing over generator servers: least in flight, circuit breaker, HTTP connections."""

import itertools
import math
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
# Seconds after which a probe that has not failed counts as accepted: an answer may take an hour.
_PROBE = 5.0
# After a minute of silence the kernel probes the peer every 15 s, and closes the connection after
# four unanswered probes. An answer may take an hour, but a dead machine must be detected.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Seconds without requests to a server that failed or is busy.

    Attributes:
        first: After the first failure; doubled with each further one.
        longest: Upper bound of the backoff of a busy server.
        longest_failing: Upper bound of the backoff of a server that may be there again.
        shortest_retry_after: Lower bound of a Retry-After, because 0 would be no pause.
        longest_retry_after: Upper bound of a Retry-After; a longer one is a refusal.
    """

    first: float = 1.0
    longest: float = 30.0
    longest_failing: float = 10.0
    shortest_retry_after: float = 0.05
    longest_retry_after: float = 600.0

    def after(self, failures: int) -> float:
        """Exponential backoff after ``failures`` consecutive failures."""
        return self.first * 2.0 ** min(failures - 1, 10)


class Endpoint:
    """A server with its circuit breaker.

    ``url`` is its base URL with ``/v1``, ``name`` its host and port, ``headers`` what carries user
    and password of the URL.

    A failure opens the circuit for a cool-down; then one request probes the server. ``refuses``
    says that its last answer was to come back much later, or never.
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
        self.refuses = False
        self._rejections = 0
        self._open_until = 0.0
        self._probed = False
        self._busy_until = 0.0
        self._clock = clock
        self._cooldown = cooldown or Cooldown()

    @property
    def failing(self) -> bool:
        """Whether the circuit is open, or the server was just sent a probe."""
        return self.failures > 0 and self._clock() < self._open_until

    @property
    def closed_for(self) -> float:
        """Seconds until the server may get a request."""
        open_until = self._open_until if self.failures else 0.0
        return max(0.0, max(open_until, self._busy_until) - self._clock())

    @property
    def available(self) -> bool:
        return self.closed_for == 0

    def on_send(self) -> None:
        """Hold further requests back behind a probe, until it may be taken for accepted."""
        now = self._clock()
        if self.failures and now >= self._open_until:
            if self._probed:
                self.failures = 0
            self._probed = not self._probed
            self._open_until = now + _PROBE

    def on_failure(self) -> bool:
        """Open the circuit after a failed request, longer with each consecutive failure.

        Returns:
            Whether it was closed before.
        """
        # Concurrent requests that fail together count once.
        if self.failing and not self._probed:
            return False
        self._probed = False
        self.failures += 1
        pause = min(self._cooldown.longest_failing, self._cooldown.after(self.failures))
        self._open_until = self._clock() + pause
        return self.failures == 1

    def on_rejection(self, retry_after: float | None = None) -> None:
        """Pause a healthy but busy server for its Retry-After, else with exponential backoff."""
        self.failures = 0
        self.refuses = (retry_after or 0.0) > self._cooldown.longest_retry_after
        # Concurrent requests that are rejected together count once.
        if self._clock() >= self._busy_until:
            self._rejections += 1
        if retry_after is None or retry_after == math.inf:
            pause = min(self._cooldown.longest, self._cooldown.after(self._rejections))
        else:
            least, most = self._cooldown.shortest_retry_after, self._cooldown.longest_retry_after
            pause = min(most, max(least, retry_after))
        self._busy_until = max(self._busy_until, self._clock() + pause)

    def on_success(self) -> None:
        """Close the circuit."""
        self.failures = self._rejections = 0
        self.refuses = self._probed = False


class Endpoints:
    """Load balancer: fewest requests in flight first, round-robin among equals.

    An unavailable server gets a request only if there is no other. While all are unavailable,
    :meth:`closed_for` holds the requests back.
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

    @property
    def all_refuse(self) -> bool:
        return all(endpoint.refuses for endpoint in self._endpoints)

    def probing(self) -> bool:
        """Whether the next request is a probe, because all servers have failed."""
        return all(endpoint.failures > 0 for endpoint in self._endpoints)

    def closed_for(self) -> float:
        """Seconds until a server may get a request."""
        return min(endpoint.closed_for for endpoint in self._endpoints)

    @contextmanager
    def acquire(self) -> Iterator[Endpoint]:
        """Choose the server for a request, and count the request on it."""
        endpoint = min(self._endpoints, key=_load)
        endpoint.last_used = next(self._turn)
        endpoint.on_send()
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
