"""Control groups that measure the CPU time of slots, where this server may make them.

A slot's group holds its init and everything that this starts. The group's counter misses nothing:
not the children that nobody waits for, nor processes too short to be seen. Reading it costs a
microsecond. Version 1 (``cpuacct``) and 2 will both do. In most containers, and for a server that
is not root, no group can be made; then the case runner adds up the processes that it sees.
"""

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shared.service.logs import get_logger

PREFIX = "plumbline-"
# Joins the group in its first argument, if that still exists, and becomes the rest.
JOIN = 'echo 0 > "$0/cgroup.procs"; exec "$@"'
_numbers = itertools.count()

log = get_logger(__name__)


@dataclass
class CpuGroup:
    """The control group of one slot.

    Attributes:
        folder: Its folder, which is removed with it.
        usage: Descriptor of its counter.
    """

    folder: Path
    usage: int = field(repr=False)

    @classmethod
    def create(cls, mounts: str | None = None, own: str | None = None) -> "CpuGroup | None":
        """Create a group below this process's own; None where that is impossible.

        Args:
            mounts: Text of ``/proc/self/mountinfo``.
            own: Text of ``/proc/self/cgroup``.
        """
        mounts = mounts if mounts is not None else _read("/proc/self/mountinfo")
        own = own if own is not None else _read("/proc/self/cgroup")
        for parent, counter in _hierarchies(mounts, own):
            _remove_stale(parent)
            folder = parent / f"{PREFIX}{os.getpid()}-{next(_numbers)}"
            try:
                folder.mkdir()
            except OSError:
                continue
            try:
                return cls(folder, os.open(folder / counter, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                _remove(folder)
        return None

    def joined_by(self, command: Sequence[str]) -> list[str]:
        """Return the command line of a process that first joins the group."""
        return ["sh", "-c", JOIN, str(self.folder), *command]

    def close(self) -> None:
        """Remove the group, whose processes are dead."""
        os.close(self.usage)
        _remove(self.folder)


def _hierarchies(mounts: str, own: str) -> Iterator[tuple[Path, str]]:
    """Yield this process's group in each hierarchy that measures CPU time, and its counter."""
    paths: dict[str, str] = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    for line in mounts.splitlines():
        head, _, tail = line.partition(" - ")
        words, (kind, _, options) = head.split(), tail.split(" ", 2)
        if kind == "cgroup" and "cpuacct" in options.split(","):
            controller, counter = "cpuacct", "cpuacct.usage"
        elif kind == "cgroup2":
            controller, counter = "", "cpu.stat"
        else:
            continue
        root, mounted = _unescaped(words[3]), Path(_unescaped(words[4]))
        path = paths.get(controller, "/")
        # In a container the mount may show less than the paths name.
        inside = os.path.relpath(path, root) if Path(path).is_relative_to(root) else "."
        yield mounted / inside, counter


def _remove_stale(parent: Path) -> None:
    """Remove the empty groups of servers that were killed."""
    try:
        folders = list(parent.glob(f"{PREFIX}*"))
    except OSError:
        return
    for folder in folders:
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            _remove(folder)


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        log.debug("control group is not removed", folder=str(folder), reason=str(error))


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _unescaped(text: str) -> str:
    """Return a path of the mount table, in which blanks are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
