"""Retry with exponential backoff and jitter, and how long a service asks to wait."""

import email.utils
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
    """Attempts at one request, until its time limit.

    Args:
        url: Address of the service, for messages.
        timeout: The time limit in seconds.
        expires: Time on the monotonic clock at which it ends.
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
            raise self.given_up(error)
        if time.monotonic() - _warned.get(self._url, -_WARN_EVERY) >= _WARN_EVERY:
            _warned[self._url] = time.monotonic()
            _log.warning("%s: %s; trying for %g s", self._url, error, self._timeout)
        time.sleep(seconds)

    def given_up(self, reason: object) -> NotJudgedError:
        """The error at the time limit."""
        return NotJudgedError(
            f"not judged within {self._timeout:g} s by {self._url}: {reason}"
            f" ({self._failed} failed attempts)"
        )


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
    """Parse a ``Retry-After`` header, seconds or an HTTP date; None if there is no valid one."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
        return max(0.0, moment.timestamp() - time.time())
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
