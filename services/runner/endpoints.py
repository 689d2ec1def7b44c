"""The generator's servers: which one gets the next request, which are left alone for a moment."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0


class Endpoint:
    """One server; ``url`` is its base URL with ``/v1``, times are seconds."""

    def __init__(self, base_url: str, clock: Callable[[], float]) -> None:
        self.url = base_url.rstrip("/").removesuffix("/v1") + "/v1"
        self.name = urlsplit(self.url).netloc or self.url
        self.in_flight = 0
        self.failures = 0
        self.last_used = 0
        self._avoid_until = 0.0
        self._clock = clock

    @property
    def avoided(self) -> bool:
        """Whether it failed lately, or failed and still is being tried with one request."""
        return self._clock() < self._avoid_until or (self.failures > 0 and self.in_flight > 0)

    def failed(self, pause: float | None = None) -> None:
        """Leave it alone for ``pause`` seconds, or the longer the more often it failed."""
        self.failures += 1
        if pause is None:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self.failures - 1, 10))
        self._avoid_until = self._clock() + pause

    def succeeded(self) -> None:
        self.failures = 0


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
        return not all(endpoint.avoided for endpoint in self._endpoints)

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


def _burden(endpoint: Endpoint) -> tuple[bool, int, int, int]:
    # Among avoided ones the least failing: a dead server never has much in flight.
    avoided = endpoint.avoided
    failures = endpoint.failures if avoided else 0
    return avoided, failures, endpoint.in_flight, endpoint.last_used
