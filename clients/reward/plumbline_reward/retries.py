"""Retry with exponential backoff and jitter, and how long a service asks to wait."""

import email.utils
import logging
import random
import time

FIRST_DELAY = 0.2
LONGEST_DELAY = 10.0
LONGEST_RETRY_AFTER = 60.0

_log = logging.getLogger("plumbline_reward")
_warned: set[str] = set()


class RetryableError(Exception):
    """A failure of infrastructure: connection, overload, an answer that makes no sense.

    ``retry_after`` is the wait in seconds that the service asks for, None if it does not.
    """

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class NoServiceError(RetryableError):
    """Nothing listens at the service's address."""


def warn_of_no_service(url: str, trouble: NoServiceError, timeout: float) -> None:
    """Log, once for each service, that nothing listens there, the time limit and the remedy."""
    if url not in _warned:
        _warned.add(url)
        advice = "to start one: plumb reward --embedded --config FILE"
        _log.warning("%s: %s; trying for %g s; %s", url, trouble, timeout, advice)


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
