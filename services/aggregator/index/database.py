"""SQLite database of the index: schema, single writer, concurrent readers, rebuild if unusable.

The index is a materialized view of the ledger and of finished runs' folders: one row per judged
sample, and tallies. It can be rebuilt from the ledger's streams and from the folders at any time.
"""

import fcntl
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from services.aggregator.index import search
from services.aggregator.index.rows import COLUMNS
from shared.errors import OutputError
from shared.service.logs import get_logger

log = get_logger(__name__)

_FILE = "index.sqlite"
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PREFIX = "plumbline-index-"
# Minimum age in seconds of a lock file that may be abandoned: a new one is free for a moment.
_MIN_AGE = 60.0
# KiB of pages that the writer keeps in memory, so that the indexes of a large run are not read
# again with each batch.
_WRITER_CACHE = 48 * 1024
# Seconds that a statement waits for a lock; with a single writer only a checkpoint holds one.
_BUSY_TIMEOUT = 30.0


class IndexInUseError(OutputError):
    """Another process uses the index folder."""


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
        self._writer.execute(f"PRAGMA cache_size = -{_WRITER_CACHE}")

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

    An index that is damaged or of another version is discarded and built again.

    Raises:
        OutputError: The folder is not writable, or another aggregator uses it.
    """
    if folder is not None:
        return _open(folder, None)
    temporary = tempfile.TemporaryDirectory(prefix=_PREFIX)
    _remove_abandoned(Path(temporary.name).parent)
    return _open(Path(temporary.name), temporary)


def _open(folder: Path, temporary: tempfile.TemporaryDirectory[str] | None) -> Database:
    setting = "PLUMBLINE_INDEX_DIR" if temporary is None else "TMPDIR"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = folder / _FILE
        if path.exists():
            _discard_unusable(path)
        if not path.exists():
            _create(path)
        return Database(folder, lock, temporary)
    except BlockingIOError:
        raise IndexInUseError(
            f"{folder}: another aggregator uses this index folder; stop it, or choose another "
            "PLUMBLINE_INDEX_DIR"
        ) from None
    except (OSError, sqlite3.Error) as error:
        raise OutputError(
            f"{folder}: cannot keep an index here ({error}); choose another {setting}"
        ) from None


def _remove_abandoned(parent: Path) -> None:
    """Remove temporary indexes of killed aggregators of this user: their lock is free."""
    for path in parent.glob(f"{_PREFIX}*/lock"):
        with suppress(OSError):  # in use, or already removed
            facts = path.lstat()
            if facts.st_uid == os.geteuid() and time.time() - facts.st_mtime > _MIN_AGE:
                with path.open() as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path.parent)


def _discard_unusable(path: Path) -> None:
    """Remove an index that is damaged or of another version: it is built again from its sources.

    Raises:
        sqlite3.DatabaseError: It cannot be read for another reason, for example a full disk.
    """
    try:
        with closing(_connect(path)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (reason,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        version, reason = 0, str(error)
    if version == _VERSION and reason == "ok":
        return
    reason = f"version {version} is not {_VERSION}" if reason == "ok" else reason[:200]
    log.warning("the index is discarded and built again", path=str(path), reason=reason)
    for part in ("-wal", "-shm", ""):
        path.with_name(path.name + part).unlink(missing_ok=True)


def is_damage(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def _create(path: Path) -> None:
    """Create the tables; the version is written last and so marks a complete file."""
    with closing(_connect(path)) as connection:
        connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
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

_VERSION = 11

# A run that is restarted from scratch under its old id is a new row of ``runs``. AUTOINCREMENT does
# not reuse ids, so rows that are left of the old run belong to no other.
_SCHEMA = f"""
CREATE TABLE runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run TEXT NOT NULL UNIQUE,
  incarnation TEXT NOT NULL,
  position TEXT NOT NULL DEFAULT '0',
  events INTEGER NOT NULL DEFAULT 0,
  -- Grows with every change of the run: the key of all caches.
  version INTEGER NOT NULL DEFAULT 0,
  completions INTEGER NOT NULL DEFAULT 0,
  state TEXT,
  -- Of a run that is read from its folder: the folder, whether it is still being read, and what of
  -- it cannot be read.
  folder TEXT,
  reading INTEGER NOT NULL DEFAULT 0,
  notes TEXT NOT NULL DEFAULT '[]',
  -- The data sets as in ``run.json``.
  datasets TEXT NOT NULL DEFAULT '[]',
  facts TEXT NOT NULL DEFAULT '{{}}',
  results TEXT NOT NULL DEFAULT '{{}}'
);

-- ``facts`` are those of its slices, ``outline`` is the packed line of problems.jsonl.
CREATE TABLE problems (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  problem_id TEXT NOT NULL,
  digest TEXT NOT NULL,
  facts TEXT NOT NULL,
  outline BLOB NOT NULL,
  UNIQUE (run_id, dataset, problem_id)
);

CREATE TABLE samples (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id INTEGER NOT NULL,
  {", ".join(COLUMNS)},
  UNIQUE (run_id, dataset, problem_id, sample_index)
);
-- Covers choices, ranges, sort keys and figures, and so reads a fifth of what the rows take. Its
-- order is that in which facets are grouped.
CREATE INDEX samples_found ON samples (
  run_id, dataset, final_status, detail, difficulty, tags, finish_reason, extraction, problem_id,
  sample_index, output_tokens, gen_time, total_judge_time, pass_ratio, cpu_time, peak_memory,
  attempts, prompt_length, flipped, failure_id, judged_at, accepted, cases_not_run
);

-- Verdict and completion of a sample, packed: apart from the rows, which are scanned.
CREATE TABLE records (id INTEGER PRIMARY KEY, record BLOB NOT NULL);
{search.TABLES}
CREATE TABLE tallies (
  run_id INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  final_status TEXT NOT NULL,
  samples INTEGER NOT NULL,
  accepted INTEGER NOT NULL,
  UNIQUE (run_id, dataset, final_status)
);
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
  DELETE FROM records WHERE id = old.id;
  DELETE FROM sample_search WHERE rowid = old.id;
  UPDATE tallies SET samples = samples - 1, accepted = accepted - old.accepted
  WHERE run_id = old.run_id AND dataset = old.dataset AND final_status = old.final_status;
END;
CREATE TRIGGER problem_removed AFTER DELETE ON problems BEGIN
  DELETE FROM prompt_search WHERE rowid = old.id;
END;
"""
