"""Workspace of a run: its folder; requests cannot access paths outside it."""

import base64
import binascii
import errno
import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Self

from shared.service.logs import get_logger

# Names of workspaces begin as those of Python's temporary folders, which programs may print.
PREFIX = "tmp_plumbline_"
FIRST_UID, LAST_UID = 61000, 64999  # of programs; free by Debian's and systemd's conventions
IGNORE_MARKER = "IGNORE_THIS_FILE"
NO_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | NO_FOLLOW

# For each of two programs that remove what a program left; what is beyond stays, and is logged.
_REMOVE_SECONDS = 300

log = get_logger(__name__)


class WorkspaceError(Exception):
    """A file of the request cannot be written or read; the message names file and reason."""


class DiskFullError(Exception):
    """The disk of the workspaces is full: no request's fault, and worth another attempt.

    Attributes:
        retry_after: Whole seconds after which it may be worth it.
    """

    retry_after = 5

    def __init__(self, folder: Path) -> None:
        super().__init__(f"the sandbox's disk is full; free some space in {folder}")


def require_space(folder: Path, reserve: int) -> None:
    """Check that a disk has more than ``reserve`` bytes left.

    Raises:
        DiskFullError: It has less.
    """
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < reserved(folder, reserve):
        raise DiskFullError(folder)


def reserved(folder: Path, reserve: int) -> int:
    """Return the bytes to keep free: ``reserve``, or an eighth of a small disk."""
    disk = os.statvfs(folder)
    return min(reserve, disk.f_blocks * disk.f_frsize // 8)


@contextmanager
def _disk_of(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(folder) from error
        raise


class Workspace:
    """A folder that belongs to the program's user, or to the server's own (``uid`` is None)."""

    def __init__(self, path: Path, uid: int | None) -> None:
        self.path = path
        self._uid = uid

    @classmethod
    def create(cls, temp_root: Path, uid: int | None = None) -> Self:
        """Make a folder; symbolic links of the temp root are resolved.

        Raises:
            DiskFullError: There is no space for it.
        """
        with _disk_of(temp_root):
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=temp_root)).resolve()
        workspace = cls(path, uid)
        workspace._chown(workspace.path)
        return workspace

    def write_code(self, code: str, name: str) -> Path:
        """Write the program.

        Raises:
            WorkspaceError: The text cannot be encoded.
            DiskFullError: There is no space for it.
        """
        path = self.path / name
        try:
            self._write(path, code.encode())
        except (OSError, UnicodeEncodeError) as error:
            raise WorkspaceError(f"cannot write the code: {error}") from error
        return path

    def prepare(self, files: dict[str, str | None], fetched: list[str]) -> None:
        """Write a request's files, and check the names of the files that it fetches.

        None values and names with the ignore marker are skipped.

        Raises:
            WorkspaceError: A path is outside the folder, or a file is not base64 or not writable.
            DiskFullError: There is no space for them.
        """
        for name in fetched:
            relative_parts(name)
        for name, content in files.items():
            if content is None or IGNORE_MARKER in name:
                continue
            parts = relative_parts(name)
            try:
                data = base64.b64decode(content)
                self._make_parents(parts[:-1])
                self._write(self.path.joinpath(*parts), data)
            except (OSError, ValueError, binascii.Error) as error:
                raise WorkspaceError(f"cannot write file {name!r}: {_reason(error)}") from error

    def read_files(self, names: list[str], limit: int) -> dict[str, str]:
        """Read the regular files among ``names`` as base64; symbolic links are not followed.

        Raises:
            WorkspaceError: They exceed ``limit`` bytes together.
        """
        files: dict[str, str] = {}
        left = limit
        for name in names:
            data = self._read(relative_parts(name), left)
            if data is None:
                continue
            left -= len(data)
            if left < 0:
                raise WorkspaceError(f"fetch_files: more than {limit} bytes, at {name!r}")
            files[name] = base64.b64encode(data).decode()
        return files

    def restore(self) -> None:
        """Undo what a program changed of the folder itself."""
        self.path.chmod(0o700)

    def clear(self) -> bool:
        """Remove everything in the folder; return whether nothing of it can be seen any more."""
        try:
            self.path.chmod(0o700)
            for path in self.path.iterdir():
                remove_tree(path)
            return not any(self.path.iterdir())
        except OSError as error:
            log.warning("cannot clear a workspace", reason=str(error))
            return False

    def remove(self) -> None:
        """Remove the folder."""
        remove_tree(self.path)

    def _make_parents(self, parts: tuple[str, ...]) -> None:
        folder = self.path
        for part in parts:
            folder = folder / part
            if not folder.is_dir():
                with _disk_of(self.path.parent):
                    folder.mkdir()
                self._chown(folder)

    def _write(self, path: Path, data: bytes) -> None:
        with _disk_of(self.path.parent):
            path.write_bytes(data)
        self._chown(path)

    def _chown(self, path: Path) -> None:
        if self._uid is not None:
            os.chown(path, self._uid, self._uid)

    def _read(self, parts: tuple[str, ...], limit: int) -> bytes | None:
        try:
            folder = os.open(self.path, FOLDER)
            try:
                for part in parts[:-1]:
                    deeper = os.open(part, FOLDER, dir_fd=folder)
                    os.close(folder)
                    folder = deeper
                # Non-blocking: a named pipe created by the program must not block the server.
                fd = os.open(parts[-1], os.O_RDONLY | os.O_NONBLOCK | NO_FOLLOW, dir_fd=folder)
            finally:
                os.close(folder)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read(limit + 1)


def claim(temp_root: Path) -> tuple[int | None, list[Path]]:
    """Lock the temp root for this server, which makes its workspaces afterwards.

    Returns the lock, to be held until this server ends, and the workspaces of servers that were
    killed. While another server of this user lives, nobody can tell whose they are: there are none.
    """
    name = temp_root / f".plumbline-sandbox-{os.geteuid()}"
    try:
        lock = os.open(name, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o600)
    except OSError:  # no workspace can be made either, and that error has the reason
        return None, []
    abandoned: list[Path] = []
    with suppress(OSError):  # another server holds it, or the file system has no locks
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        abandoned = [path for path in temp_root.glob(f"{PREFIX}*") if _is_ours(path)]
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_SH)
    return lock, abandoned


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    programs = range(FIRST_UID, LAST_UID + 1) if os.geteuid() == 0 else ()
    own = status.st_uid == os.geteuid() or status.st_uid in programs
    return own and stat.S_ISDIR(status.st_mode)


def remove_trees(paths: Iterable[Path]) -> None:
    for path in paths:
        remove_tree(path)


def remove_tree(path: Path) -> None:
    """Remove a file or folder that a program made; a failure is logged.

    Neither way follows a link that a program which still lives puts in the place of a folder.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    with suppress(RecursionError):  # of folders a thousand levels deep, before Python 3.13
        shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        return
    # The program removed permissions, or nested folders too deeply for rmtree.
    for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*command, "--", str(path)],
                capture_output=True,
                check=False,
                timeout=_REMOVE_SECONDS,
            )
    if path.exists():
        log.warning("files of a program not removed", path=str(path))


def relative_parts(name: str) -> tuple[str, ...]:
    """Split a relative path into its parts.

    Raises:
        WorkspaceError: It is absolute, empty, contains ``..``, or is not a valid path.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise WorkspaceError(f"path {name!r} is outside the folder of the run")
    if "\0" in name or not _encodable(name):
        raise WorkspaceError(f"path {name!r} is not a valid file name")
    return path.parts


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
