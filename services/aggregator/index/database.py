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
from shared.errors import OutputError, PlumblineError
from shared.service.logs import get_logger

log = get_logger(__name__)

_FILE = "index.sqlite"
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# Tells the next start of damage that its check does not find.
_MARK = "index-is-damaged"
_PREFIX = "plumbline-index-"
# Minimum age in seconds of a folder without a lock to remove: a new one has none for a moment.
_MIN_AGE = 60.0
# KiB of pages that the writer keeps in memory, so that the indexes of a large run are not read
# again with each batch.
_WRITER_CACHE = 48 * 1024
# Seconds that a statement waits for a lock; with a single writer only a checkpoint holds one.
_BUSY_TIMEOUT = 30.0


class IndexInUseError(OutputError):
    """Another process uses the index folder."""


class IndexDamagedError(PlumblineError):
    """A transaction met damage; the next start, which may be at once, builds the index again."""

    exit_code = 1


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
        self._damage: IndexDamagedError | None = None
        self._writer = _connect(self.path)
        self._writer.execute(f"PRAGMA cache_size = -{_WRITER_CACHE}")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction: committed at the end, rolled back on an exception."""
        with self._marking_damage(), self._writing, self._writer as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Open a read-only snapshot of the last commit."""
        with self._marking_damage(), closing(_connect(self.path)) as connection:
            connection.execute("PRAGMA query_only = 1")
            connection.execute("BEGIN")
            yield connection

    def require_intact(self) -> None:
        """Raise the error of damage that a transaction of any thread has met."""
        if self._damage is not None:
            raise self._damage

    @contextmanager
    def _marking_damage(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._damage = IndexDamagedError(
                f"{self.path} is damaged ({error}); it is built again at the next start, from "
                "Redis and from the folders of finished runs, and nothing is lost"
            )
            with suppress(OSError):
                self.path.with_name(_MARK).write_text(str(error)[:200])
            raise self._damage from None

    def close(self) -> None:
        with self._writing:
            self._writer.close()
        self._lock.close()
        if self._temporary is not None:
            self._temporary.cleanup()


def open_database(folder: Path | None = None) -> Database:
    """Open the index in ``folder``, or in a temporary folder that ``close`` removes.

    An index that is damaged or of another version is rebuilt from scratch; the file is kept beside
    it, as ``index-damaged.sqlite`` or ``index-version-4.sqlite``, in place of an earlier one.

    Raises:
        OutputError: The folder is not writable, or another aggregator uses it.
    """
    if folder is not None:
        return _open(folder, None)
    while True:
        temporary = tempfile.TemporaryDirectory(prefix=_PREFIX)
        _remove_abandoned(Path(temporary.name).parent)
        try:
            return _open(Path(temporary.name), temporary)
        except IndexInUseError:
            temporary.cleanup()  # another process took it for abandoned, before it was locked


def _open(folder: Path, temporary: tempfile.TemporaryDirectory[str] | None) -> Database:
    setting = "PLUMBLINE_INDEX_DIR" if temporary is None else "TMPDIR"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock.fileno()).st_nlink == 0:  # removed before it was locked
            raise BlockingIOError
    except BlockingIOError:
        raise IndexInUseError(
            f"{folder}: another aggregator uses this index folder; stop it, or choose another "
            "PLUMBLINE_INDEX_DIR"
        ) from None
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot keep an index here ({error}); choose another {setting}"
        ) from None
    path = folder / _FILE
    try:
        if path.exists():
            _keep_other(path)
        if not path.exists():
            _create(path)
        return Database(folder, lock, temporary)
    except (OSError, sqlite3.Error) as error:
        raise OutputError(
            f"{folder}: cannot keep an index here ({error}); choose another {setting}"
        ) from None


def _remove_abandoned(parent: Path) -> None:
    """Remove temporary indexes of killed aggregators of this user: their lock is free."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            found = folder.lstat()
            if found.st_uid == os.geteuid():
                _remove_unlocked(folder, young=time.time() - found.st_mtime < _MIN_AGE)
        except OSError:
            continue  # in use, or already removed


def _remove_unlocked(folder: Path, *, young: bool) -> None:
    """Remove a folder; raises OSError if it is in use or about to be."""
    create = 0 if young else os.O_CREAT
    lock = os.open(folder / "lock", os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | create, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(lock)


def _keep_other(path: Path) -> None:
    """Make place for a new index, unless the file is an intact one of this version.

    Another one is kept aside, in the place of an earlier one, for whoever asks why or goes back.

    Raises:
        OSError: The file cannot be moved.
    """
    version, damage = _examined(path)
    mark = path.with_name(_MARK)
    if mark.exists():
        damage = damage or mark.read_text()
    if version == _VERSION and not damage:
        return
    rebuilt = "from Redis and from the folders of finished runs; nothing is lost"
    kept = path.with_name(f"index-{'damaged' if damage else f'version-{version}'}{path.suffix}")
    if damage:
        log.error(
            "the index is damaged, it is built again",
            path=str(path),
            reason=damage,
            kept=str(kept),
            how=rebuilt,
        )
    else:
        log.warning(
            "the index has another version, it is built again",
            path=str(path),
            found=version,
            wanted=_VERSION,
            kept=str(kept),
            how=rebuilt,
        )
    for part in ("-wal", "-shm", ""):  # the index last, so that what an end leaves is moved again
        kept.with_name(kept.name + part).unlink(missing_ok=True)
        if (source := path.with_name(path.name + part)).exists():
            source.rename(kept.with_name(kept.name + part))
    mark.unlink(missing_ok=True)


def _examined(path: Path) -> tuple[int, str]:
    """The version of an index, 0 if its making was cut off, and what is damaged in it.

    Raises:
        sqlite3.DatabaseError: It cannot be read for another reason, for example a full disk.
    """
    try:
        with closing(_connect(path)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            return int(version), "" if found == "ok" else str(found)[:200]
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        return 0, str(error)[:200]


def _is_damage(error: sqlite3.DatabaseError) -> bool:
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

_VERSION = 6

# A run that is restarted from scratch under its old id is a new row of ``runs``. AUTOINCREMENT does
# not reuse ids, so a cursor of the old run cannot match rows of the new one. Sort keys are
# expressions without NULL, because keyset pagination cannot compare with NULL.
_TABLES = """
CREATE TABLE runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run TEXT NOT NULL UNIQUE,
  incarnation TEXT NOT NULL,
  position TEXT NOT NULL DEFAULT '0',
  events INTEGER NOT NULL DEFAULT 0,
  completions INTEGER NOT NULL DEFAULT 0,
  state TEXT,
  -- Of a run that is read from its folder: the folder, whether it is still being read, and what of
  -- it cannot be read.
  folder TEXT,
  reading INTEGER NOT NULL DEFAULT 0,
  notes TEXT NOT NULL DEFAULT '[]',
  facts TEXT NOT NULL DEFAULT '{{}}',
  results TEXT NOT NULL DEFAULT '{{}}'
);

CREATE TABLE planned (
  run_id INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  problems INTEGER NOT NULL,
  samples INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  PRIMARY KEY (run_id, dataset)
) WITHOUT ROWID;

-- What a comparison knows of a problem: see ``problems.py``.
CREATE TABLE problems (
  run_id INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  problem_id TEXT NOT NULL,
  digest TEXT NOT NULL,
  difficulty TEXT NOT NULL,
  tags TEXT NOT NULL,
  num_tests INTEGER,
  prompt_length INTEGER,
  method TEXT,
  checker TEXT,
  PRIMARY KEY (run_id, dataset, problem_id)
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
  finish_reason TEXT,
  extraction TEXT,
  cpu_time REAL,
  peak_memory INTEGER,
  failure TEXT,
  failure_id TEXT,
  stderr TEXT,
  kind INTEGER NOT NULL,
  prompt INTEGER,
  -- Offset and length in bytes of the lines in the run's folder; verdict_at is NULL for other runs.
  generation_at INTEGER,
  generation_bytes INTEGER,
  verdict_at INTEGER,
  verdict_bytes INTEGER,
  UNIQUE (run_id, dataset, problem_id, sample_index)
);
CREATE INDEX samples_judged_at ON samples (run_id, ifnull(judged_at, -1));
CREATE INDEX samples_pass_ratio ON samples (run_id, pass_ratio);
CREATE INDEX samples_output_tokens ON samples (run_id, ifnull(output_tokens, -1));
CREATE INDEX samples_gen_time ON samples (run_id, ifnull(gen_time, -1));
CREATE INDEX samples_judge_time ON samples (run_id, total_judge_time);
CREATE INDEX samples_of_run ON samples (run_id);
-- Covers filters and sort keys, so that a filter reads a fifth of what the rows take.
CREATE INDEX samples_found ON samples (
  run_id, kind, prompt, final_status, dataset, problem_id, sample_index, output_tokens, gen_time,
  total_judge_time, pass_ratio, cpu_time, peak_memory, attempts, prompt_length, flipped, failure_id,
  judged_at
);
CREATE INDEX samples_failures ON samples (run_id, failure_id) WHERE failure_id IS NOT NULL;
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

-- Places of the lines of problems.jsonl in a run's folder.
CREATE TABLE outlines (
  run_id INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  problem_id TEXT NOT NULL,
  start INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY (run_id, dataset, problem_id)
) WITHOUT ROWID;

-- Combinations of the values that samples have in common, as JSON (``SampleRow.kind``).
CREATE TABLE kinds (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id INTEGER NOT NULL,
  value TEXT NOT NULL,
  UNIQUE (run_id, value)
);
{texts}
CREATE TABLE tallies (
  run_id INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  final_status TEXT NOT NULL,
  samples INTEGER NOT NULL,
  accepted INTEGER NOT NULL,
  PRIMARY KEY (run_id, dataset, final_status)
) WITHOUT ROWID;

-- The tallies of a run that is read from its folder are written with each batch.
CREATE TRIGGER sample_added AFTER INSERT ON samples WHEN new.verdict_at IS NULL BEGIN
  INSERT INTO tallies VALUES (new.run_id, new.dataset, new.final_status, 1, new.accepted)
  ON CONFLICT DO UPDATE SET samples = samples + 1, accepted = accepted + excluded.accepted;
END;
CREATE TRIGGER sample_changed AFTER UPDATE OF final_status, accepted ON samples BEGIN
  UPDATE tallies SET samples = samples - 1, accepted = accepted - old.accepted
  WHERE run_id = old.run_id AND dataset = old.dataset AND final_status = old.final_status;
  INSERT INTO tallies VALUES (new.run_id, new.dataset, new.final_status, 1, new.accepted)
  ON CONFLICT DO UPDATE SET samples = samples + 1, accepted = accepted + excluded.accepted;
END;
CREATE TRIGGER sample_removed AFTER DELETE ON samples WHEN old.verdict_at IS NULL BEGIN
  UPDATE tallies SET samples = samples - 1, accepted = accepted - old.accepted
  WHERE run_id = old.run_id AND dataset = old.dataset AND final_status = old.final_status;
END;
"""

_SCHEMA = _TABLES.format(texts=search.TABLES)
