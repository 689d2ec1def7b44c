"""Retry with exponential backoff and jitter, and how long a service asks to wait."""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from plumbline_reward.errors import NotJudgedError

FIRST_DELAY = 0.2
LONGEST_DELAY = 10.0
LONGEST_RETRY_AFTER = 60.0
_WARN_EVERY = 60.0

_log = logging.getLogger("plumbline_reward")
_warned: dict[str, float] = {}
Result = TypeVar("Result")


class RetryableError(Exception):
    """A failure of infrastructure: connection, overload, an answer that makes no sense.

    ``retry_after`` is the wait in seconds that the service asks for, None if it does not.
    """

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


def retry(attempt: Callable[[], Result], url: str, timeout: float, expires: float) -> Result:
    """Repeat an attempt at a request while it raises :class:`RetryableError`.

    Args:
        attempt: Makes the request.
        url: Address of the service, for messages.
        timeout: The time limit in seconds, for messages.
        expires: The end of that time on the monotonic clock.

    Raises:
        NotJudgedError: The time limit would pass before the next attempt.
    """
    failed = 0
    while True:
        try:
            return attempt()
        except RetryableError as error:
            failed += 1
            seconds = delay(failed, error.retry_after)
            if time.monotonic() + seconds >= expires:
                text = f"not judged within {timeout:g} s by {url}: {error}"
                raise NotJudgedError(f"{text} ({failed} failed attempts)") from None
            if time.monotonic() - _warned.get(url, -_WARN_EVERY) >= _WARN_EVERY:
                _warned[url] = time.monotonic()
                _log.warning("%s: %s; trying for %g s", url, error, timeout)
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
