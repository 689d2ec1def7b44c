"""Retry with exponential backoff and jitter, and how long a service asks to wait."""

import logging
import random
import time

from plumbline_reward.errors import NotJudgedError

FIRST_DELAY = 0.2
LONGEST_DELAY = 10.0
LONGEST_RETRY_AFTER = 60.0
_WARN_EVERY = 60.0

_log = logging.getLogger("plumbline_reward")
_warned: dict[str, float] = {}


class RetryableError(Exception):
    """A failure of infrastructure: connection, overload, an answer that makes no sense.

    ``retry_after`` is the wait in seconds that the service asks for, None if it does not.
    """

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Attempts:
    """Attempts at one request to ``url``, until its time limit.

    ``timeout`` is the limit in seconds; ``expires`` is its end on the monotonic clock.
    """

    def __init__(self, url: str, timeout: float, expires: float) -> None:
        self._url = url
        self._timeout = timeout
        self._failed = 0
        self.expires = expires

    def wait(self, error: RetryableError) -> None:
        """Wait for the next attempt after a failure.

        Raises:
            NotJudgedError: The time limit would pass before.
        """
        self._failed += 1
        seconds = delay(self._failed, error.retry_after)
        if time.monotonic() + seconds >= self.expires:
            raise NotJudgedError(
                f"not judged within {self._timeout:g} s by {self._url}: {error}"
                f" ({self._failed} failed attempts)"
            )
        if time.monotonic() - _warned.get(self._url, -_WARN_EVERY) >= _WARN_EVERY:
            _warned[self._url] = time.monotonic()
            _log.warning("%s: %s; trying for %g s", self._url, error, self._timeout)
        time.sleep(seconds)


def delay(attempts: int, retry_after: float | None) -> float:
    """Choose the seconds before the next attempt, after ``attempts`` failed ones (at least 1).

    Jitter keeps the clients of one trainer from coming back at the same moment. A proxy that asks
    for no wait at all gets the usual one: otherwise all items would be sent without a pause.
    """
    if retry_after:
        return min(retry_after, LONGEST_RETRY_AFTER) * random.uniform(1.0, 1.25)
    longest = min(FIRST_DELAY * 2.0 ** min(attempts - 1, 16), LONGEST_DELAY)
    return longest * random.uniform(0.5, 1.0)


def retry_after_seconds(header: str | None) -> float | None:
    """Parse the seconds of a ``Retry-After`` header; None without a number."""
    text = (header or "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
