"""SQLite database of the index: schema, single writer, concurrent readers, rebuild if unusable.

The index is a materialized view of the ledger: one row per judged sample, and tallies maintained by
triggers. It can be rebuilt from the ledger's streams at any time.
"""

import fcntl
import shutil
import sqlite3
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TextIO

from shared.errors import OutputError
from shared.service.logs import get_logger

log = get_logger(__name__)

_FILE = "index.sqlite"
_PREFIX = "plumbline-index-"
# Minimum age in seconds of a folder to remove: a new one is not locked yet for a moment.
_MIN_AGE = 60.0
# Seconds that a statement waits for a lock; with a single writer only a checkpoint holds one.
_BUSY_TIMEOUT = 30.0


class Database:
    """An open index in WAL mode: readers see the last commit and never wait for the writer."""

    def __init__(
        self, folder: Path, lock: TextIO, temporary: tempfile.TemporaryDirectory[str] | None = None
    ) -> None:
        """Open the database file; ``close`` releases ``lock`` and removes ``temporary``."""
        self.path = folder / _FILE
        self._lock = lock
        self._temporary = temporary
        self._writing = threading.Lock()
        self._writer = _connect(self.path)
        self.name = str(self._writer.execute("SELECT value FROM about").fetchone()[0])

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction: committed at the end, rolled back on an exception."""
        with self._writing, self._writer as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Open a read-only snapshot of the last commit."""
        with closing(_connect(self.path)) as connection:
            connection.execute("PRAGMA query_only = 1")
            connection.execute("BEGIN")
            yield connection

    def close(self) -> None:
        with self._writing:
            self._writer.close()
        self._lock.close()
        if self._temporary is not None:
            self._temporary.cleanup()


def open_database(folder: Path | None = None) -> Database:
    """Open the index in ``folder``, or in a temporary folder that ``close`` removes.

    An index that is damaged or of another version is rebuilt from scratch.

    Raises:
        OutputError: The folder is not writable, or another aggregator uses it.
    """
    if folder is None:
        temporary = tempfile.TemporaryDirectory(prefix=_PREFIX)
        _remove_abandoned(Path(temporary.name).parent)
        return _open(Path(temporary.name), temporary)
    return _open(folder, None)


def _open(folder: Path, temporary: tempfile.TemporaryDirectory[str] | None) -> Database:
    setting = "PLUMBLINE_INDEX_DIR" if temporary is None else "TMPDIR"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(
            f"{folder}: another aggregator uses this index folder; stop it, or choose another "
            "PLUMBLINE_INDEX_DIR"
        ) from None
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot keep an index here ({error}); choose another {setting}"
        ) from None
    path = folder / _FILE
    if path.exists() and not _usable(path):
        log.warning("index is unusable, rebuilding it", path=str(path))
        for name in (_FILE, f"{_FILE}-wal", f"{_FILE}-shm"):
            (folder / name).unlink(missing_ok=True)
    try:
        if not path.exists():
            _create(path)
        return Database(folder, lock, temporary)
    except sqlite3.Error as error:
        raise OutputError(
            f"{folder}: cannot keep an index here ({error}); choose another {setting}"
        ) from None


def _remove_abandoned(parent: Path) -> None:
    """Remove temporary indexes of killed aggregators: their lock is free."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime < _MIN_AGE:
                continue
            with (folder / "lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        except OSError:
            continue  # in use, or already removed


def _usable(path: Path) -> bool:
    """Check that the file is an intact index of this version."""
    try:
        with closing(_connect(path)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            return bool(version == _VERSION and found == "ok")
    except sqlite3.DatabaseError:
        return False


def _create(path: Path) -> None:
    """Create the tables; the version is written last and so marks a complete file."""
    with closing(_connect(path)) as connection:
        connection.executescript(_SCHEMA)
        connection.execute("INSERT INTO about VALUES ('name', ?)", (uuid.uuid4().hex,))
        connection.execute(f"PRAGMA user_version = {_VERSION}")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
    )
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        # Commits lost in a power failure are read from the stream again.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA temp_store = MEMORY")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


# Schema.

_VERSION = 4

# A run that is restarted from scratch under its old id is a new row of ``runs``. AUTOINCREMENT does
# not reuse ids, so a cursor of the old run cannot match rows of the new one. Sort keys are
# expressions without NULL, because keyset pagination cannot compare with NULL.
_TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run TEXT NOT NULL UNIQUE,
  incarnation TEXT NOT NULL,
  position TEXT NOT NULL DEFAULT '0',
  events INTEGER NOT NULL DEFAULT 0,
  completions INTEGER NOT NULL DEFAULT 0,
  state TEXT,
  facts TEXT NOT NULL DEFAULT '{{}}',
  results TEXT NOT NULL DEFAULT '{{}}'
);

CREATE TABLE planned (
  run_id INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  problems INTEGER NOT NULL,
  samples INTEGER NOT NULL,
  PRIMARY KEY (run_id, dataset)
) WITHOUT ROWID;

CREATE TABLE samples (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  problem_id TEXT NOT NULL,
  sample_index INTEGER NOT NULL,
  completion_sha256 TEXT NOT NULL,
  final_status TEXT NOT NULL,
  detail TEXT,
  accepted INTEGER NOT NULL,
  pass_ratio REAL NOT NULL,
  cases_passed INTEGER NOT NULL,
  cases_total INTEGER NOT NULL,
  cases_not_run INTEGER NOT NULL,
  output_tokens INTEGER,
  gen_time REAL,
  total_judge_time REAL NOT NULL,
  attempts INTEGER NOT NULL,
  confirmed INTEGER NOT NULL,
  flipped INTEGER NOT NULL,
  replica TEXT,
  worker TEXT,
  finished_at REAL,
  judged_at REAL,
  difficulty TEXT NOT NULL,
  tags TEXT NOT NULL,
  num_tests INTEGER,
  prompt_length INTEGER,
  UNIQUE (run_id, dataset, problem_id, sample_index)
);
CREATE INDEX samples_judged_at ON samples (run_id, ifnull(judged_at, -1));
CREATE INDEX samples_pass_ratio ON samples (run_id, pass_ratio);
CREATE INDEX samples_output_tokens ON samples (run_id, ifnull(output_tokens, -1));
CREATE INDEX samples_gen_time ON samples (run_id, ifnull(gen_time, -1));
CREATE INDEX samples_judge_time ON samples (run_id, total_judge_time);
-- Covering indexes for the figures of a data set.
CREATE INDEX judged_problems ON samples (run_id, dataset, problem_id, accepted, final_status)
  WHERE final_status <> 'api_error';
CREATE INDEX judged_pass_ratio ON samples (run_id, dataset, pass_ratio, final_status)
  WHERE final_status <> 'api_error';
CREATE INDEX judged_cut ON samples (run_id, dataset, final_status)
  WHERE cases_not_run > 0;
CREATE INDEX judged_output_tokens ON samples (run_id, dataset, output_tokens, final_status)
  WHERE final_status <> 'api_error' AND output_tokens IS NOT NULL;
CREATE INDEX judged_gen_time ON samples (run_id, dataset, gen_time, final_status)
  WHERE final_status <> 'api_error' AND gen_time IS NOT NULL;
CREATE INDEX judged_judge_time ON samples (run_id, dataset, total_judge_time, final_status)
  WHERE final_status <> 'api_error' AND total_judge_time IS NOT NULL;

CREATE TABLE tallies (
  run_id INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  final_status TEXT NOT NULL,
  samples INTEGER NOT NULL,
  accepted INTEGER NOT NULL,
  PRIMARY KEY (run_id, dataset, final_status)
) WITHOUT ROWID;

CREATE TRIGGER sample_added AFTER INSERT ON samples BEGIN
  INSERT INTO tallies VALUES (new.run_id, new.dataset, new.final_status, 1, new.accepted)
  ON CONFLICT DO UPDATE SET samples = samples + 1, accepted = accepted + excluded.accepted;
END;
CREATE TRIGGER sample_changed AFTER UPDATE OF final_status, accepted ON samples BEGIN
  UPDATE tallies SET samples = samples - 1, accepted = accepted - old.accepted
  WHERE run_id = old.run_id AND dataset = old.dataset AND final_status = old.final_status;
  INSERT INTO tallies VALUES (new.run_id, new.dataset, new.final_status, 1, new.accepted)
  ON CONFLICT DO UPDATE SET samples = samples + 1, accepted = accepted + excluded.accepted;
END;
CREATE TRIGGER sample_removed AFTER DELETE ON samples BEGIN
  UPDATE tallies SET samples = samples - 1, accepted = accepted - old.accepted
  WHERE run_id = old.run_id AND dataset = old.dataset AND final_status = old.final_status;
END;

-- Number of samples by the second in which they were generated or judged.
CREATE TABLE moments (
  run_id INTEGER NOT NULL,
  kind TEXT NOT NULL,
  second INTEGER NOT NULL,
  samples INTEGER NOT NULL,
  PRIMARY KEY (run_id, kind, second)
) WITHOUT ROWID;
{moments}
"""

_MOMENT = """
CREATE TRIGGER {kind}_added AFTER INSERT ON samples WHEN new.{column} IS NOT NULL BEGIN
  INSERT INTO moments VALUES (new.run_id, '{kind}', CAST(new.{column} AS INTEGER), 1)
  ON CONFLICT DO UPDATE SET samples = samples + 1;
END;
CREATE TRIGGER {kind}_left AFTER UPDATE OF {column} ON samples WHEN old.{column} IS NOT NULL BEGIN
  UPDATE moments SET samples = samples - 1 WHERE run_id = old.run_id AND kind = '{kind}'
  AND second = CAST(old.{column} AS INTEGER);
END;
CREATE TRIGGER {kind}_moved AFTER UPDATE OF {column} ON samples WHEN new.{column} IS NOT NULL BEGIN
  INSERT INTO moments VALUES (new.run_id, '{kind}', CAST(new.{column} AS INTEGER), 1)
  ON CONFLICT DO UPDATE SET samples = samples + 1;
END;
CREATE TRIGGER {kind}_removed AFTER DELETE ON samples WHEN old.{column} IS NOT NULL BEGIN
  UPDATE moments SET samples = samples - 1 WHERE run_id = old.run_id AND kind = '{kind}'
  AND second = CAST(old.{column} AS INTEGER);
END;
"""

_SCHEMA = _TABLES.format(
    moments=_MOMENT.format(kind="generated", column="finished_at")
    + _MOMENT.format(kind="judged", column="judged_at")
)
