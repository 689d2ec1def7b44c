"""The generator's servers: which one gets the next request, which are left alone for a moment."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
# Of a Retry-After: none at all would be no pause, and a mistaken one no end.
_SHORTEST_RETRY_AFTER = 0.05
_LONGEST_RETRY_AFTER = 600.0


class Endpoint:
    """One server; ``url`` is its base URL with ``/v1``, times are seconds."""

    def __init__(self, base_url: str, clock: Callable[[], float]) -> None:
        self.url = base_url.rstrip("/").removesuffix("/v1") + "/v1"
        self.name = urlsplit(self.url).netloc or self.url
        self.in_flight = 0
        self.failures = 0
        self.last_used = 0
        self._refusals = 0
        self._failing_until = 0.0
        self._busy_until = 0.0
        self._clock = clock

    @property
    def failing(self) -> bool:
        """Whether it failed lately, or failed and still is being tried with one request."""
        return self.failures > 0 and (self._clock() < self._failing_until or self.in_flight > 0)

    @property
    def busy_for(self) -> float:
        """Seconds until it wants to be asked again."""
        return max(0.0, self._busy_until - self._clock())

    @property
    def avoided(self) -> bool:
        return self.failing or self.busy_for > 0

    def failed(self) -> None:
        """It gave no answer: leave it alone, the longer the more often it failed."""
        self.failures += 1
        self._failing_until = self._clock() + _growing(self.failures)

    def busy(self, retry_after: float | None = None) -> None:
        """It is well, but asked to be left alone: as long as it said, or longer each time."""
        # Those that it refuses in the same moment are one refusal.
        if not self.busy_for:
            self._refusals += 1
        if retry_after is None:
            pause = _growing(self._refusals)
        else:
            pause = min(_LONGEST_RETRY_AFTER, max(_SHORTEST_RETRY_AFTER, retry_after))
        self._busy_until = max(self._busy_until, self._clock() + pause)

    def succeeded(self) -> None:
        self.failures = 0
        self._refusals = 0


class Endpoints:
    """Least in flight first, in turn where equal; avoided ones only where there is no other."""

    def __init__(
        self, base_urls: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not base_urls:
            raise ValueError("no generator URL")
        # A URL named twice is one server all the same.
        endpoints = [Endpoint(url, clock) for url in base_urls]
        self._endpoints = list({endpoint.url: endpoint for endpoint in endpoints}.values())
        self._turn = itertools.count(1)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._endpoints)

    @property
    def any_free_of_failures(self) -> bool:
        return not all(endpoint.failing for endpoint in self._endpoints)

    def pause(self) -> float:
        """Seconds until a server wants a request; those that fail are asked in a pinch only."""
        well = [endpoint for endpoint in self._endpoints if not endpoint.failing]
        return min(endpoint.busy_for for endpoint in well or self._endpoints)

    @contextmanager
    def borrow(self) -> Iterator[Endpoint]:
        """Count a request on the endpoint that should get it."""
        endpoint = min(self._endpoints, key=_burden)
        endpoint.last_used = next(self._turn)
        endpoint.in_flight += 1
        try:
            yield endpoint
        finally:
            endpoint.in_flight -= 1


def _growing(times: int) -> float:
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(times - 1, 10))


def _burden(endpoint: Endpoint) -> tuple[bool, int, int, int]:
    # Among avoided ones the least failing: a dead server never has much in flight.
    avoided = endpoint.avoided
    failures = endpoint.failures if avoided else 0
    return avoided, failures, endpoint.in_flight, endpoint.last_used
