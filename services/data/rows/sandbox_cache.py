"""Rows fetched from a sandbox, kept in a JSONL file so that a broken fetch goes on where it was.

The first line says what is kept, a line per row follows, and the last says that these are all.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

from shared.reading import data_error, reading

Key = int | str
Fields = dict[str, Any]

_VERSION = 1  # of the rows' form: a file of another is fetched anew


class RowCache:
    """An open file of rows.

    Attributes:
        path: Where it is.
        keys: The ids of the rows, in order.
        complete: All rows of the data set are there; known once ``stored`` has ended.
    """

    def __init__(self, path: Path, file: BinaryIO, header: dict[str, Any]) -> None:
        self.keys: dict[Key, None] = {}
        self.complete = False
        self.path = path
        self._file = file
        self._header = {"version": _VERSION, **header}
        self._end = 0  # of the last line that can be used
        self._writing = False

    @classmethod
    @contextmanager
    def opened(cls, path: Path, header: dict[str, Any], *, read_only: bool) -> Iterator[Self]:
        """Open the file, and unless it is only read make it where there is none.

        Raises:
            DataError: It cannot be opened.
        """
        with reading(str(path)):
            if not read_only:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            file = path.open("rb" if read_only else "r+b")
        with file:
            yield cls(path, file, header)

    def stored(self) -> Iterator[tuple[Key, Fields]]:
        """The rows up to the first line that cannot be used, such as a torn one.

        There are none where the header is another's.
        """
        first = self._file.readline()
        if _parsed(first) != self._header:
            return
        self._end = len(first)
        for line in self._file:
            match _parsed(line):
                case {"complete": count} if count == len(self.keys):
                    self.complete = True
                    return
                case {"id": int() | str() as key, "row": dict() as row} if key not in self.keys:
                    self.keys[key] = None
                    self._end += len(line)
                    yield key, row
                case _:
                    return

    def add(self, key: Key, row: Fields) -> None:
        """Append a row; whatever stood after the last usable line is gone with the first.

        Raises:
            DataError: It cannot be written, or another process writes to it.
        """
        self._append({"id": key, "row": row})
        self.keys[key] = None

    def finish(self) -> None:
        """Mark the rows as all there are.

        Raises:
            DataError: As ``add``.
        """
        self._append({"complete": len(self.keys)})
        self.complete = True

    def _append(self, entry: dict[str, Any]) -> None:
        try:
            if not self._writing:
                self._begin()
            self._write(entry)
        except BlockingIOError:
            cause = "another process fetches into it; wait for its end"
            raise data_error(str(self.path), cause) from None
        except OSError as error:
            cause = f"cannot be written ({error}); check the folder and the space in it"
            raise data_error(str(self.path), cause) from None

    def _begin(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._file.seek(self._end)
        self._file.truncate()
        self._writing = True
        if not self._end:
            self._write(self._header)

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()


def _parsed(line: bytes) -> object:
    """What the line says; None where it is torn or no JSON."""
    if not line.endswith(b"\n"):
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
