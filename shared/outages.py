"""Outages: the time in which no request to a service succeeds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

# Seconds for which a service that will refuse all requests is still waited for: answers to earlier
# requests may arrive.
_FINAL = 30.0


class Outage:
    """The time since the first failed request that no success has followed.

    It has lasted too long after ``budget`` seconds. ``answered`` counts successful requests,
    ``reason`` is the last failure. ``final``: the service will refuse all further requests.
    """

    def __init__(self, budget: float) -> None:
        self.answered = 0
        self.reason = ""
        self.final = False
        self._budget = budget
        self._since: float | None = None
        self._silent = False
        self._succeeded = self._looked = time.time()
        self._sent: list[float] = []

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request as in flight, and as a success unless the block raises."""
        sent = time.time()
        self._sent.append(sent)
        try:
            yield
        finally:
            self._sent.remove(sent)
        self.answered += 1
        self._succeeded, self._since = time.time(), None
        self._silent = self.final = False

    def failed(self, reason: str, *, silent: bool = False, final: bool = False) -> None:
        """Record a failure.

        A ``silent`` service answers nothing, so no request in flight is being worked on. ``final``:
        it will refuse all further requests, for example for a used-up quota.
        """
        self.reason, self._silent, self.final = reason, silent, final
        self._looked = time.time() if silent else self._looked
        self._since = time.time() if self._since is None else self._since

    def spoke(self) -> None:
        """Record that a service which was silent answers again, if not yet to a request."""
        self._looked = time.time()
        if self._silent:
            self._since, self._silent = None, False

    @property
    def silent_for(self) -> float:
        """Seconds without a sign of life while a request is in flight; 0 if none is in flight."""
        last = max(self._succeeded, self._looked)
        return time.time() - max(self._sent[0], last) if self._sent else 0.0

    @property
    def since(self) -> float | None:
        """When the outage began; None if there is none.

        A request that has been in flight for most of the time is being worked on: the service is
        busy, not away.
        """
        if self._since is None or self.final or self._silent or not self._sent:
            return self._since
        now = time.time()
        return None if now - self._sent[0] > (now - self._since) / 2 else self._since

    @property
    def ends_at(self) -> float:
        """When an outage has lasted too long."""
        budget = min(_FINAL, self._budget) if self.final else self._budget
        return budget + (time.time() if self._since is None else self._since)
