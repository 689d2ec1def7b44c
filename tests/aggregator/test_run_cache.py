"""Values computed from all samples of a run, and when they are computed again."""

from dataclasses import replace
from pathlib import Path

from services.aggregator.index.database import open_database
from services.aggregator.index.overview import RunCache, find_run
from services.aggregator.index.writer import IndexWriter
from shared.ledger import RunProgress
from shared.run_record import RunState


def test_a_value_is_two_seconds_old_in_a_running_run_and_never_in_a_finished_one(
    tmp_path: Path,
) -> None:
    database = open_database(tmp_path)
    IndexWriter(database).add_run(RunProgress("r", "i", "running", "0", 0, 0), [])
    now, calls = [100.0], iter(range(1, 9))
    cache = RunCache(lambda _connection, _run: next(calls), clock=lambda: now[0])
    with database.read() as connection:
        run = find_run(connection, "r")
        assert run is not None

        def value(version: int, state: RunState = RunState.RUNNING) -> int:
            return cache.of(connection, replace(run, version=version, state=state))

        assert value(1) == 1
        now[0] += 1.9
        assert value(2) == 1
        now[0] += 0.2
        assert value(2) == 2
        assert value(3, RunState.COMPLETE) == 3
        now[0] += 9
        assert value(3, RunState.COMPLETE) == 3
    database.close()
