"""Cache of what is computed from all samples of a run, or of several."""

import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from services.aggregator.index.overview import IndexedRun

T = TypeVar("T")
Ints = tuple[int, ...]


class RunCache(Generic[T]):
    """Computes a value of runs again when one of them has changed; thread-safe.

    The value of a run that is in progress is kept for ``max_age`` seconds, whatever changes. The
    values that were used least recently are dropped.

    Args:
        compute: Computes the value from a snapshot of the index and the runs; one at a time.
        max_age: Seconds.
        most: Number of values.
        clock: Seconds since any moment.
    """

    def __init__(
        self,
        compute: Callable[..., T],
        *,
        max_age: float = 2.0,
        most: int = 50,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._compute, self._max_age, self._clock, self._most = compute, max_age, clock, most
        # By the runs' ids: versions, time, value.
        self._made: dict[Ints, tuple[Ints, float, T]] = {}
        self._lock = threading.Lock()

    def of(self, connection: sqlite3.Connection, *runs: IndexedRun) -> T:
        """The value of runs that were just read from the same snapshot."""
        key, versions = tuple(run.id for run in runs), tuple(run.version for run in runs)
        with self._lock:
            versions_then, then, value = self._made.pop(key, ((), 0.0, None))
            young = any(run.changing for run in runs) and self._clock() - then < self._max_age
            if value is None or not (versions_then == versions or young):
                value = self._compute(connection, *runs)
                versions_then, then = versions, self._clock()
            self._made[key] = versions_then, then, value  # the last one
            if len(self._made) > self._most:
                del self._made[next(iter(self._made))]
            return value
