"""The index's file: one writer, any number of readers, made anew where it cannot be used."""

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

from services.aggregator.index.schema import SCHEMA, VERSION
from shared.errors import OutputError
from shared.service.logs import get_logger

log = get_logger(__name__)

_FILE = "index.sqlite"
_PREFIX = "plumbline-index-"
# Between a folder's making and its lock there is a moment.
_YOUNG = 60.0
# Seconds a statement waits for another one's lock; with one writer only a checkpoint holds one.
_BUSY = 30.0


class Database:
    """Readers see what was committed last and never wait for the writer (WAL)."""

    def __init__(self, folder: Path, lock: TextIO, keep: object = None) -> None:
        """``keep`` is held as long as the database is: the temporary folder, where it is one."""
        self.path = folder / _FILE
        self._held = (lock, keep)
        self._writing = threading.Lock()
        self._writer = _connect(self.path)
        self.name = str(self._writer.execute("SELECT value FROM about").fetchone()[0])

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction: committed at the end, rolled back where that is not reached."""
        with self._writing, self._writer as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One unchanging view of what is committed."""
        with closing(_connect(self.path)) as connection:
            connection.execute("PRAGMA query_only = 1")
            connection.execute("BEGIN")
            yield connection

    def close(self) -> None:
        with self._writing:
            self._writer.close()
        lock, folder = self._held
        lock.close()
        if isinstance(folder, tempfile.TemporaryDirectory):
            folder.cleanup()


def open_database(folder: Path | None = None) -> Database:
    """Open the index in ``folder``, or in a temporary one that goes away with it.

    Raises:
        OutputError: The folder cannot be used, or another aggregator uses it.
    """
    if folder is None:
        temporary = tempfile.TemporaryDirectory(prefix=_PREFIX)
        _remove_abandoned(Path(temporary.name).parent)
        return _open(Path(temporary.name), temporary)
    return _open(folder, None)


def _open(folder: Path, keep: object) -> Database:
    setting = "PLUMBLINE_INDEX_DIR" if keep is None else "TMPDIR"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(
            f"{folder}: another aggregator keeps its index here; end it, or choose another "
            "PLUMBLINE_INDEX_DIR"
        ) from None
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot keep an index here ({error}); choose another {setting}"
        ) from None
    path = folder / _FILE
    if path.exists() and not _usable(path):
        log.warning("the index cannot be used, making it anew", path=str(path))
        for name in (_FILE, f"{_FILE}-wal", f"{_FILE}-shm"):
            (folder / name).unlink(missing_ok=True)
    try:
        if not path.exists():
            _create(path)
        return Database(folder, lock, keep)
    except sqlite3.Error as error:
        raise OutputError(
            f"{folder}: cannot keep an index here ({error}); choose another {setting}"
        ) from None


def _remove_abandoned(parent: Path) -> None:
    """Remove the temporary indexes of aggregators that were killed: nobody holds their lock."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime < _YOUNG:
                continue
            with (folder / "lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        except OSError:
            continue  # somebody's, or gone meanwhile


def _usable(path: Path) -> bool:
    """Whether it is an intact index of this version."""
    try:
        with closing(_connect(path)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            return bool(version == VERSION and found == "ok")
    except sqlite3.DatabaseError:
        return False


def _create(path: Path) -> None:
    """The version is written last: a file without it was not finished."""
    with closing(_connect(path)) as connection:
        connection.executescript(SCHEMA)
        connection.execute("INSERT INTO about VALUES ('name', ?)", (uuid.uuid4().hex,))
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        # What a power failure takes is read from the stream again, from the position before it.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA temp_store = MEMORY")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection
