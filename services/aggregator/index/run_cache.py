"""Cache of what is computed from all samples of a run, or of several."""

import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from services.aggregator.index.overview import IndexedRun

T = TypeVar("T")


class RunCache(Generic[T]):
    """Computes a value of runs again when one of them has changed; thread-safe.

    The value of a run that is in progress is kept for ``max_age`` seconds, whatever changes. The
    values that were used least recently are dropped.

    Args:
        compute: Computes the value from a snapshot of the index and the runs; one at a time.
        max_age: Seconds.
        most: Weight of all values together.
        weight: Weight of a value.
        clock: Seconds since any moment.
    """

    def __init__(
        self,
        compute: Callable[..., T],
        *,
        max_age: float = 2.0,
        most: int = 50,
        weight: Callable[[T], int] = lambda _value: 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._compute, self._max_age, self._clock = compute, max_age, clock
        self._most, self._weight = most, weight
        # By the runs' ids: versions, time, value.
        self._made: dict[tuple[int, ...], tuple[tuple[int, ...], float, T]] = {}
        self._total = 0
        self._lock = threading.Lock()

    def of(self, connection: sqlite3.Connection, *runs: IndexedRun) -> T:
        """The value of runs that were just read from the same snapshot."""
        key, versions = tuple(run.id for run in runs), tuple(run.version for run in runs)
        with self._lock:
            made = self._made.get(key)
            young = any(run.changing for run in runs) and (
                made is not None and self._clock() - made[1] < self._max_age
            )
            if made is None or not (made[0] == versions or young):
                value = self._compute(connection, *runs)
                self._total += self._weight(value) - (self._weight(made[2]) if made else 0)
                made = versions, self._clock(), value
            self._made.pop(key, None)
            self._made[key] = made  # the last one
            while self._total > self._most and len(self._made) > 1:
                _, _, dropped = self._made.pop(next(iter(self._made)))
                self._total -= self._weight(dropped)
            return made[2]
