"""Outages of a run's services: reports while the run waits, and the end of one in vain."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from redis import Redis
from redis.exceptions import RedisError

from services.runner.run import ProgressListener
from shared.errors import ServiceError
from shared.ledger.connection import PATIENCE, fail_fast
from shared.ledger.queue import troubles_of_judges
from shared.run_record import OutageReport
from shared.text import shorten_end

# Seconds until an outage is reported for the first time, and between two reports of it.
_FIRST_REPORT, _REPORTS = 10.0, 30.0
_LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class Trouble:
    """An outage of one service since a Unix time; the run ends at ``until``.

    ``what`` is the service and what it does, such as ``the generator at HOST refuses connections``.
    ``waiting`` counts the samples that wait for it, ``reason`` is the last error, ``next_try`` the
    seconds until the next request, ``advice`` what to do before the command is repeated.
    """

    what: str
    waiting: int
    since: float
    until: float
    reason: str = ""
    next_try: float = 0.0
    advice: str = "start it"

    def __str__(self) -> str:
        text = f"{self.what} since {_clock(self.since)}, {self.waiting} samples wait"
        text += f", next try in {self.next_try:.0f} s" if self.next_try >= 1 else ""
        text += f", trying until {_clock(self.until)}"
        return f"{text} ({self.report().reason})" if self.reason else text

    def report(self) -> OutageReport:
        """The outage for the page."""
        reason = shorten_end(self.reason, _LONGEST_REASON)
        return OutageReport(what=self.what, since=self.since, reason=reason)

    def error(self) -> ServiceError:
        """The error that ends the run."""
        reason = f" ({self.reason})" if self.reason else ""
        return ServiceError(
            f"{self.what} since {_clock(self.since)}{reason}; {self.waiting} samples wait; "
            f"{self.advice}, and repeat the command to resume"
        )


Check = Callable[[], Awaitable[Trouble | None]]


async def watch_outages(
    listener: ProgressListener, checks: Sequence[Check], *, tick: float = 1.0
) -> None:
    """Report the troubles that the checks find, every 30 seconds, and their end; never returns.

    Raises:
        ServiceError: A service has been away for too long; the run can be resumed.
    """
    # The last outage that each check reported, and when.
    reports: dict[Check, tuple[Trouble, float]] = {}
    while True:
        await asyncio.sleep(tick)
        troubles = [await check() for check in checks]
        listener.waits([trouble.report() for trouble in troubles if trouble])
        now = time.time()
        for check, trouble in zip(checks, troubles, strict=True):
            before, reported = reports.get(check, (None, -math.inf))
            if trouble is None:
                if before is not None:
                    listener.note(f"over after {now - before.since:.0f} s: {before.what}")
                    del reports[check]
            elif now >= trouble.until:
                raise trouble.error()
            elif now >= max(trouble.since + _FIRST_REPORT, reported + _REPORTS):
                listener.note(str(trouble))
                reports[check] = trouble, now


class JudgesCheck:
    """Checks Redis, the judges, and by what these report the sandboxes.

    ``waiting`` returns the number of completions without a verdict, ``unfinished`` that of samples.
    """

    def __init__(
        self, redis: Redis, waiting: Callable[[], int], unfinished: Callable[[], int]
    ) -> None:
        self._redis = fail_fast(redis)
        self._waiting = waiting
        self._unfinished = unfinished
        self._last: Trouble | None = None

    def close(self) -> None:
        self._redis.close()

    async def __call__(self) -> Trouble | None:
        trouble, before = await asyncio.to_thread(self._look), self._last
        if trouble and before and trouble.what == before.what:
            trouble = replace(trouble, since=before.since, until=before.until)
        self._last = trouble
        return trouble

    def _look(self) -> Trouble | None:
        waiting, now = self._waiting(), time.time()
        try:
            troubles = troubles_of_judges(self._redis)
        except RedisError as error:
            # A little earlier than the run's commands give up, whose errors say less.
            until = now + 0.98 * PATIENCE
            return Trouble("Redis does not answer", self._unfinished(), now, until, str(error))
        if not waiting or any(trouble is None for trouble in troubles):
            return None
        if not troubles:
            advice = "start one (python -m services.judge)"
            return Trouble("no judge is there", waiting, now, now + PATIENCE, advice=advice)
        reason = " and ".join(sorted(set(filter(None, troubles))))
        return Trouble("no sandbox answers", waiting, now, now + PATIENCE, reason)


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment).strftime("%H:%M:%S")
