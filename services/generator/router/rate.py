"""How fast requests are finished, for the Retry-After of those that must come again."""

import math
import time
from collections.abc import Callable

_WINDOW = 30.0
_LONGEST = 60
_UNKNOWN = 5


class Rate:
    """A count that fades over half a minute. Times are seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._last = clock()
        self._count = 0.0

    def finished(self) -> None:
        self._count = self._faded() + 1
        self._last = self._clock()

    @property
    def per_second(self) -> float:
        age = self._clock() - self._began
        # A young count has not had the time to fade.
        seen = _WINDOW * -math.expm1(-age / _WINDOW)
        return self._faded() / seen if seen > 0 else 0.0

    def retry_after(self, waiting: int) -> int:
        """Whole seconds until ``waiting`` requests are through, from 1 to 60."""
        if self.per_second < 1e-3:
            return _UNKNOWN
        return min(_LONGEST, max(1, math.ceil(waiting / self.per_second)))

    def _faded(self) -> float:
        return self._count * math.exp((self._last - self._clock()) / _WINDOW)
