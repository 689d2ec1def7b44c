"""Cache of what is computed from all samples of a run."""

import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from services.aggregator.index.database import Database
from services.aggregator.index.overview import IndexedRun, find_run
from shared.service.logs import get_logger

log = get_logger(__name__)

_CACHED_RUNS = 50
# Seconds of a computation for which a request need not wait, if there is an earlier value.
_LONG = 0.1
# The value of a changing run is this many times as old as its computation takes, so that a run of a
# million samples does not keep a core busy for the page; but nobody gets one older than this.
_REST, _OLDEST = 10.0, 60.0

T = TypeVar("T")
_Version = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Made(Generic[T]):
    value: T
    version: _Version
    at: float
    took: float


class RunCache(Generic[T]):
    """Computes a value of a run again when the run has changed; thread-safe.

    The value of a run that is going on is kept for ``max_age`` seconds. If it takes long to
    compute, requests get the previous value while the next one is computed in the background.
    A finished run's value is never old.

    Args:
        compute: Computes the value from a snapshot of the index.
        database: Is read in the background; None if requests wait for each computation.
        max_age: Seconds.
        clock: Seconds since any moment.
    """

    def __init__(
        self,
        compute: Callable[[sqlite3.Connection, IndexedRun], T],
        database: Database | None = None,
        *,
        max_age: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._compute = compute
        self._database = database
        self._max_age = max_age
        self._clock = clock
        self._made: dict[int, _Made[T]] = {}
        self._computing: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()

    def of(self, connection: sqlite3.Connection, run: IndexedRun) -> T:
        """The value of a run that was just read from the same snapshot."""
        with self._lock:
            if (made := self._made.get(run.id)) and self._current(made, run):
                return made.value
            computing = self._computing.setdefault(run.id, threading.Lock())
        if made and self._database and self._serves_meanwhile(made, run):
            self._compute_later(self._database, run, computing)
            return made.value
        with computing:
            with self._lock:  # by a request that had the lock before
                if (made := self._made.get(run.id)) and self._current(made, run):
                    return made.value
            return self._compute_now(connection, run)

    def _current(self, made: _Made[T], run: IndexedRun) -> bool:
        if made.version == _version(run):
            return True
        age = self._clock() - made.at
        rest = _REST * made.took if self._database else 0.0
        return _changing(run) and age < max(self._max_age, min(rest, _OLDEST))

    def _serves_meanwhile(self, made: _Made[T], run: IndexedRun) -> bool:
        old = self._clock() - made.at > _OLDEST
        return _changing(run) and made.took > _LONG and not old

    def _compute_now(self, connection: sqlite3.Connection, run: IndexedRun) -> T:
        begun = self._clock()
        value = self._compute(connection, run)
        ended = self._clock()
        with self._lock:
            self._made[run.id] = _Made(value, _version(run), ended, ended - begun)
            if len(self._made) > _CACHED_RUNS:
                oldest = min(self._made, key=lambda run_id: self._made[run_id].at)
                del self._made[oldest]
                self._computing.pop(oldest, None)
        return value

    def _compute_later(
        self, database: Database, run: IndexedRun, computing: threading.Lock
    ) -> None:
        if not computing.acquire(blocking=False):
            return  # it is being computed

        def work() -> None:
            try:
                with database.read() as connection:
                    found = find_run(connection, run.run)
                    if found is not None and found.id == run.id:
                        self._compute_now(connection, found)
            except sqlite3.Error as error:  # the next request waits for it, and tells
                log.warning("cannot read the index", run=run.run, reason=str(error))
            finally:
                computing.release()

        # A daemon: the end of the service does not wait for it.
        threading.Thread(target=work, name="run-cache", daemon=True).start()


def _changing(run: IndexedRun) -> bool:
    return run.reading or run.state is None or not run.state.final


def _version(run: IndexedRun) -> _Version:
    return (run.events, run.state, run.reading)
