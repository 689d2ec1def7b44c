"""Cache of what is computed from all samples of a run."""

import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from services.aggregator.index.overview import IndexedRun

T = TypeVar("T")


class RunCache(Generic[T]):
    """Computes a value of a run again when the run has changed; thread-safe.

    The value of a run that is going on is kept for ``max_age`` seconds, whatever changes.

    Args:
        compute: Computes the value from a snapshot of the index; one at a time.
        max_age: Seconds.
        most: Number of runs.
        clock: Seconds since any moment.
    """

    def __init__(
        self,
        compute: Callable[[sqlite3.Connection, IndexedRun], T],
        *,
        max_age: float = 2.0,
        most: int = 50,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._compute, self._max_age, self._most, self._clock = compute, max_age, most, clock
        self._made: dict[int, tuple[int, float, T]] = {}  # by run: version, when, value
        self._lock = threading.Lock()

    def of(self, connection: sqlite3.Connection, run: IndexedRun) -> T:
        """The value of a run that was just read from the same snapshot."""
        with self._lock:
            if run.id in self._made:
                version, at, value = self._made[run.id]
                young = run.changing and self._clock() - at < self._max_age
                if version == run.version or young:
                    return value
            value = self._compute(connection, run)
            self._made.pop(run.id, None)
            self._made[run.id] = run.version, self._clock(), value
            if len(self._made) > self._most:
                del self._made[next(iter(self._made))]
            return value
