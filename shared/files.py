"""Atomic file replacement: write under a temporary name, then rename."""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # services that write only local files are installed without fsspec
    from fsspec import AbstractFileSystem


def write_text(path: Path, text: str) -> None:
    """Replace a local file atomically: a reader sees either the old content or the new.

    A pipe or a device, such as ``/dev/stdout``, is written to.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    temporary = path.with_name(_temporary_name(path.name))
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def storage_errors() -> Iterator[None]:
    """Convert the exceptions of a filesystem's package, such as botocore's, into OSError."""
    try:
        yield
    except OSError:
        raise
    # They have no common base, and their packages may not be installed.
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


@contextmanager
def atomic_write(
    fs: "AbstractFileSystem", path: str, mode: Literal["w", "wb"] = "w"
) -> Iterator[IO[Any]]:
    """Open a file of an fsspec filesystem that replaces ``path`` when the block ends.

    If the block raises, the old file stays and the temporary one is removed. An object store has no
    rename: the temporary object is copied and removed, and a copy also appears as a whole. Missing
    folders are created. ``mode`` is for UTF-8 text, or bytes.

    Raises:
        OSError: The file cannot be written.
    """
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/{_temporary_name(name)}"
    with storage_errors():
        fs.makedirs(folder, exist_ok=True)
        file = fs.open(temporary, mode, encoding="utf-8" if mode == "w" else None)
    try:
        yield file
        with storage_errors():
            file.close()
            fs.mv(temporary, path)
    except BaseException:
        for remove in (file.close, lambda: fs.rm(temporary)):
            with suppress(Exception):
                remove()
        raise


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files that killed processes of this machine have left in a folder."""
    ours = re.compile(rf"\..+\.{re.escape(socket.gethostname())}\.(\d{{1,10}})\.tmp")
    with suppress(OSError):
        for path in folder.iterdir():
            temporary = ours.fullmatch(path.name)
            if temporary and path.is_file() and not is_alive(int(temporary[1])):
                path.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Return this user's folder for what can be made again."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return Path(cache) / "plumbline"


def is_alive(pid: int) -> bool:
    """Whether there is a process with this id, whosever it is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _temporary_name(name: str) -> str:
    # Containers that share a folder have the same process ids, but other host names.
    return f".{name}.{socket.gethostname()}.{os.getpid()}.tmp"
