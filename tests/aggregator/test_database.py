import os
import sqlite3
import tempfile
import time
from pathlib import Path

import pytest
from redis import Redis
from structlog.testing import capture_logs

from services.aggregator.index.database import open_database
from services.aggregator.index.overview import all_runs
from services.aggregator.ingest import Ingester
from shared.errors import OutputError
from shared.schemas import SampleId
from tests.aggregator.runs import begin, judge
from tests.shared.ledgers import problem


def test_a_temporary_index_goes_away_and_leftovers_of_the_killed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, young = (tmp_path / f"plumbline-index-{name}" for name in ("old", "young"))
    for folder in (old, young):
        folder.mkdir()
        (folder / "lock").touch()
    os.utime(old / "lock", (time.time() - 1000,) * 2)
    alive = open_database()
    os.utime(alive.path.with_name("lock"), (time.time() - 1000,) * 2)
    database = open_database()
    assert not old.exists()
    assert young.exists()  # it may be locked in a moment
    assert alive.path.exists()
    database.close()
    alive.close()
    assert list(tmp_path.iterdir()) == [young]


def test_one_aggregator_per_folder(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    with pytest.raises(OutputError, match="another aggregator"):
        open_database(tmp_path)
    database.close()
    open_database(tmp_path).close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"PLUMBLINE_INDEX_DIR") as raised:
        open_database(tmp_path / "file" / "index")
    assert "\n" not in str(raised.value)


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def _torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _of_another_version(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()


def _unfinished(path: Path) -> None:
    path.write_bytes(b"")


def test_an_index_that_cannot_be_read_now_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, or with too few open files."""
    open_database(tmp_path).close()
    content = (tmp_path / "index.sqlite").read_bytes()

    def full(*_: object, **__: object) -> sqlite3.Connection:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.raises(OutputError, match="disk is full"):
        open_database(tmp_path)
    assert (tmp_path / "index.sqlite").read_bytes() == content


@pytest.mark.parametrize("spoil", [_garbage, _torn, _of_another_version, _unfinished])
def test_an_index_that_cannot_be_used_is_made_anew(redis: Redis, tmp_path: Path, spoil) -> None:
    judge(begin(redis, [problem("p1")]), SampleId("d1", "p1"))
    database = open_database(tmp_path)
    Ingester(redis, database).catch_up()
    database.close()
    spoil(database.path)
    with capture_logs() as lines:
        database = open_database(tmp_path)
    assert [line["event"] for line in lines] == ["the index is discarded and built again"]
    Ingester(redis, database).catch_up()
    with database.read() as connection:
        assert [run.verdicts for run in all_runs(connection)] == [1]
    database.close()


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    with pytest.raises(KeyError), database.write() as connection:
        connection.execute("INSERT INTO runs (run, incarnation) VALUES ('r', 'i')")
        raise KeyError
    with database.read() as connection:
        assert all_runs(connection) == []
    with database.read() as connection, pytest.raises(sqlite3.OperationalError):
        connection.execute("DELETE FROM runs")
    database.close()
