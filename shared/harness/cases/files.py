"""Files of cases: the call and its results, folders that are fresh before each case.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.harness.languages import Language

RESULTS, CALL = "results", "call"
# The languages whose programs are run by the harness's own interpreter; the second one is that of
# function tests.
PYTHON, FUNCTIONS = "python", "functions"
# Limits in the order in which they are sent, as in ``wire.CaseLimits``.
TIMES = ("cpu", "wall", "compile", "budget")
NUMBERS = ("memory", "output", "processes", "timeouts", "results")
# Folders that any user can write to.
PUBLIC_FOLDERS = (
    "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", "/var/lock", "/var/crash",
    "/run/shm",
)  # fmt: skip


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def clear(path: str) -> None:
    """Clear a path: a file or folder that cannot be removed is renamed."""
    try:
        remove(path)
    except OSError:
        os.rename(path, sibling_name(path))


def remove(path: str) -> None:
    """Remove a file or folder. Inner folders are moved out first, so any depth works."""
    todo = [path]
    while todo:
        folder = todo.pop()
        if not unlink(folder):
            continue
        os.chmod(folder, 0o700)
        for name in os.listdir(folder):
            inner = folder + "/" + name
            if unlink(inner):
                os.chmod(inner, 0o700)
                todo.append(sibling_name(path))
                os.rename(inner, todo[-1])
        os.rmdir(folder)


def unlink(path: str) -> bool:
    """Remove a file, if it exists; returns whether it is a folder instead."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        return True
    return False


def sibling_name(path: str) -> str:
    return path + "-" + os.urandom(8).hex()


def inner_paths(folder: str) -> list[str]:
    return [folder + "/" + name for name in os.listdir(folder)]


class SharedFolder:
    """A folder that programs can write to and that outlives them."""

    def __init__(self, path: str, keep: Iterable[str]) -> None:
        self.path = path
        self.keep = frozenset(keep)
        self.mode = os.stat(path).st_mode & 0o7777
        self.own = os.stat(path).st_uid == os.geteuid()

    def restore(self, workspace: str | None = None) -> None:
        """Remove what programs left: files, and what decides the rights to files made here."""
        if self.own and os.stat(self.path).st_mode & 0o7777 != self.mode:
            os.chmod(self.path, self.mode)
        for inner in inner_paths(self.path) if self.path != workspace else ():
            if inner not in self.keep:
                remove(inner)


class PublicFolder(SharedFolder):
    """A folder of the machine in which all users can make files; ``user`` is that of the cases."""

    def __init__(self, path: str, user: int, keep: Iterable[str] = ()) -> None:
        self.path = path
        self.user = user
        self.keep = frozenset(keep)

    @classmethod
    def all_of(cls, user: int, keep: Iterable[str] = ()) -> list[PublicFolder]:
        """Return those of this machine, with what must stay in them."""
        paths = {os.path.realpath(path) for path in PUBLIC_FOLDERS if os.path.isdir(path)}
        return [cls(path, user, keep) for path in sorted(paths) if os.access(path, os.W_OK)]

    def restore(self, workspace: str | None = None) -> None:
        for inner in inner_paths(self.path):
            try:
                if inner not in self.keep and os.lstat(inner).st_uid == self.user:
                    remove(inner)
            except FileNotFoundError:
                pass  # other programs work here as well


class CaseFolder:
    """Folder of the cases with the program in it, a new one for each case."""

    def __init__(self, folder: str, language: Language, source: bytes, user: int | None) -> None:
        self.path = folder + "/case"
        self.file = language.file_of(source.decode("utf-8", "replace"))
        self.program = self.path + "/" + self.file
        self.source = source
        self.user = user

    def restore(self) -> None:
        """Make the folder anew."""
        clear(self.path)
        os.mkdir(self.path, 0o700)
        fd = os.open(self.program, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        write_all(fd, self.source)
        os.close(fd)
        if self.user is not None:
            for path in (self.program, self.path):
                os.chown(path, self.user, self.user)


class CallSpec:
    """Specification of a call: language, limits, sizes of the answer, its prelude, the inputs."""

    def __init__(self, line: bytes) -> None:
        self.language, *words = line.decode().split()
        self.times = dict(zip(TIMES, map(float, words)))
        sizes = list(map(int, words[len(TIMES) :]))
        self.numbers = dict(zip(NUMBERS, sizes))
        self.answer, self.prelude, *self.inputs = sizes[len(NUMBERS) :]


class Records:
    """Records, written to a file descriptor.

    Attributes:
        size: Bytes so far.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = 0

    def add(
        self, kind: object, *words: object, out: int = 0, size: int = 0, err: bytes = b""
    ) -> None:
        """Add a record; ``out`` is the descriptor of a file with ``size`` bytes of output."""
        head = b"%s\n" % " ".join(map(str, (kind, *words, size, len(err)))).encode()
        write_all(self.fd, head)
        copy(out, self.fd, 0, size)
        write_all(self.fd, err + b"\n")
        self.size += len(head) + size + len(err) + 1


def copy(source: int, target: int, start: int, size: int) -> None:
    """Copy a part of a file by the kernel: it does not get into this process's memory."""
    end = start + size
    while start < end:
        start += os.sendfile(target, source, start, end - start)
