"""How soon, and how often, a replica is started again."""

import time
from collections import deque
from collections.abc import Callable

_HOUR = 3600.0
_LONGEST = 120.0


class Restarts:
    """Allows ``per_hour`` of them, each after twice the pause of the one before.

    What is older than an hour is forgotten, for the pause as well. Times are seconds.
    """

    def __init__(
        self, *, first_pause: float, per_hour: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first_pause = first_pause
        self._per_hour = per_hour
        self._clock = clock
        self._times: deque[float] = deque()

    def next_pause(self) -> float | None:
        """The pause before the next start, which counts from now on; None: no more of them."""
        now = self._clock()
        while self._times and self._times[0] <= now - _HOUR:
            self._times.popleft()
        if len(self._times) >= self._per_hour:
            return None
        pause = min(_LONGEST, self._first_pause * 2.0 ** min(len(self._times), 20))
        self._times.append(now)
        return pause
