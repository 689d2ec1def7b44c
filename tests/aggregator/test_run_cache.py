"""What is computed from all samples: when it is computed again, and who waits for it."""

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from services.aggregator.index.database import Database, open_database
from services.aggregator.index.overview import IndexedRun, find_run
from services.aggregator.index.run_cache import RunCache
from services.aggregator.index.writer import IndexWriter
from shared.ledger import RunProgress
from shared.run_record import RunState

WAIT = 10


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = open_database(tmp_path)
    IndexWriter(database).add_run(RunProgress("r", "i", "running", "0", 0, 0), {})
    yield database
    database.close()


class Slow:
    """A computation that takes so many seconds of its own clock, and may be held up."""

    def __init__(self, database: Database, takes: float) -> None:
        self.now, self.calls, self.takes = 100.0, 0, takes
        self.go_on = threading.Event()
        self.go_on.set()
        self.cache = RunCache(self._compute, clock=lambda: self.now)
        self._database = database

    def _compute(self, _connection: sqlite3.Connection, run: IndexedRun) -> int:
        assert self.go_on.wait(WAIT)
        self.now += self.takes
        self.calls += 1
        return self.calls

    def ask(self, version: int, state: RunState = RunState.RUNNING) -> int:
        with self._database.read() as connection:
            run = find_run(connection, "r")
            assert run is not None
            return self.cache.of(connection, replace(run, version=version, state=state))


def test_the_value_of_a_run_that_goes_on_is_at_most_two_seconds_old(database: Database) -> None:
    slow = Slow(database, takes=0.05)
    assert slow.ask(version=1) == 1
    slow.now += 1.9
    assert slow.ask(version=2) == 1
    slow.now += 0.2
    assert slow.ask(version=2) == 2


def test_the_value_of_a_finished_run_is_never_old(database: Database) -> None:
    slow = Slow(database, takes=1.0)
    assert slow.ask(version=1) == 1
    assert slow.ask(version=2, state=RunState.COMPLETE) == 2
    assert slow.ask(version=2, state=RunState.COMPLETE) == 2


def test_requests_at_once_compute_one_value(database: Database) -> None:
    slow = Slow(database, takes=1.0)
    slow.go_on.clear()
    found: list[int] = []
    asked = [threading.Thread(target=lambda: found.append(slow.ask(1))) for _ in range(5)]
    for one in asked:
        one.start()
    slow.go_on.set()
    for one in asked:
        one.join(WAIT)
    assert found == [1] * 5
