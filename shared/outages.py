"""Outages: the time in which no request to a service succeeds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

# Seconds for which a service that will refuse all requests is still waited for: answers to earlier
# requests may arrive.
_FINAL = 30.0


class Outage:
    """The time since the first failed request that no success has followed.

    Args:
        budget: Seconds after which an outage has lasted too long.

    Attributes:
        answered: Successful requests so far.
        reason: The last failure.
    """

    def __init__(self, budget: float) -> None:
        self.answered = 0
        self.reason = ""
        self._budget = budget
        self._since: float | None = None
        self._silent = False
        self._final: float | None = None
        self._succeeded = time.monotonic()
        self._sent: list[float] = []

    @contextmanager
    def request(self) -> Iterator[float]:
        """Count a request as in flight; yields the time at which it is sent."""
        sent = time.monotonic()
        self._sent.append(sent)
        try:
            yield sent
        finally:
            self._sent.remove(sent)

    def failed(self, reason: str, *, silent: bool = False, final: bool = False) -> None:
        """Record a failure.

        Args:
            reason: What the service answers.
            silent: Whether it answers nothing, so that no request in flight is being worked on.
            final: Whether it will refuse all further requests, for example for a used-up quota.
        """
        now = time.monotonic()
        self.reason, self._silent = reason, silent
        self._since = now if self._since is None else self._since
        if final and self._final is None:
            self._final = now

    def succeeded(self, sent: float) -> None:
        """Record that a request succeeded which was sent at ``sent``."""
        self.answered += 1
        self._succeeded, self._since, self._silent = time.monotonic(), None, False
        if self._final is not None and sent > self._final:
            self._final = None

    def spoke(self) -> None:
        """Record that a service which was silent answers again, if not yet to a request."""
        if self._silent:
            self._since, self._silent = None, False

    @property
    def silent_for(self) -> float:
        """Seconds without an answer to a request in flight; 0 if none is in flight."""
        if not self._sent:
            return 0.0
        return time.monotonic() - max(self._sent[0], self._succeeded)

    @property
    def since(self) -> float | None:
        """When the outage began; None if there is none.

        A request that has been in flight for most of the time is being worked on: the service is
        busy, not away.
        """
        if self._since is None or self._final is not None:
            return self._final
        now = time.monotonic()
        working = self._sent and now - self._sent[0] > (now - self._since) / 2
        return None if working and not self._silent else self._since

    @property
    def ends_at(self) -> float:
        """When an outage has lasted too long."""
        if self._final is not None:
            return max(self._final, self._succeeded) + min(_FINAL, self._budget)
        return self._budget + (time.monotonic() if self._since is None else self._since)

    @property
    def is_final(self) -> bool:
        """Whether the service will refuse all further requests."""
        return self._final is not None
