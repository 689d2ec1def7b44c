"""Isolation of slots: bubblewrap, Landlock with seccomp, or none.

A slot's container is made once and runs one program after another (``services.sandbox.slots``);
what a program leaves in it is removed before the next one.

Covered by ``bwrap``: no network; a file system that holds only /usr, /etc,
/opt and the interpreter, all read-only, an empty private /tmp and /dev/shm, and the slot's own
folder; a separate process namespace, so that one kill ends everything the program started, daemons
included; separate IPC and host name; no capabilities and no way to gain any. Where the kernel has
Landlock, a program can besides write to its own folder, /tmp and /dev/shm alone, and neither read
nor signal the slot's own processes.

Covered by ``landlock``, which needs no privilege at all: no sockets; files outside the same system
folders can be neither read nor changed, a program writes to its own folder alone (TMPDIR), and its
calls that change modes, times or attributes have no effect; other processes cannot be read, and
since Linux 6.12 not be signalled. ``Slot.covered`` lists what this kernel's version covers. There
is no private /tmp and no /dev/shm, and the list of the machine's processes is visible. Modules on
Python's path (``slot/modules``) let ``multiprocessing`` keep semaphores and shared memory in the
program's folder instead.

Covered by both: a seccomp filter (``shared.harness.confinement``) refuses namespaces,
mounts, ptrace, keyrings, System V IPC, message queues, io_uring, BPF, changes to other processes,
of users and owners, and system calls newer than the filter. ``none`` installs it where the kernel
permits, so that programs get the same answers from the kernel.

Covered everywhere: limits of memory per process, file size, open files and core dumps; a wall-clock
limit; a cap on output; a limit of disk space (``slot.init.Disk``); a clean environment; since Linux
6.12 no signals to other processes. The number of processes is limited where the program
runs under a separate user (the server is root) or in a user namespace of a server that is not
root (Linux 5.14 or later); a server that is root only inside a user namespace cannot limit it.

Not covered: the kernel is shared, so an exploit of a system call that is allowed reaches the
machine; memory is limited per process and not for the run as a whole, and /tmp, /dev/shm and files
without a name (memfd) are memory too: the slots together need up to twice ``tmp_limit_bytes`` each
for them; the disk is looked at every 50 ms, so a program can exceed its share for a moment, and
space of removed files that it only maps, or that a process holds which others cannot read, is not
found, only that the disk is full; CPU is shared fairly by the kernel, not reserved. If the server
is killed with SIGKILL, its programs end with it, but the folders of its slots remain until a server
starts while no other one of its user lives. With ``none`` the program can read everything that its
user can read, which is never root, and without the filter use the network.

What one program can still tell the next or one beside it: counters of the kernel (process ids,
inode numbers, CPU time and load in /proc), the time that shared caches take, locks (``flock``) on
files that both can read, extended attributes and sizes of the folders that outlive it, times of
device nodes while it runs, under ``landlock`` the access times of system files and names of
processes, and whether its slot was replaced. This is sufficient for programs of a language model,
which are clumsy rather than hostile; to run hostile ones, put the server into a virtual machine.
"""

import os
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from services.sandbox.settings import IsolationChoice

ROOT_NAMES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
SYSTEM_FOLDERS = (Path("/usr"), Path("/etc"), Path("/opt"))

CAP_SETPCAP = 8


class Identity(StrEnum):
    """The user that a program runs as."""

    SLOT = "slot user"  # one unprivileged user per slot; needs a server that is root
    NAMESPACE = "user namespace"
    SERVER = "server user"


@dataclass(frozen=True)
class FileSystemView:
    """The part of the machine's file system that a program sees, all of it read-only."""

    readonly: tuple[Path, ...]
    tmp_bytes: int
    modules: Path
    """Folder of Python modules for slots without ``/dev/shm``."""

    def root_links(self) -> list[tuple[str, str]]:
        roots = [Path("/", name) for name in ROOT_NAMES]
        return [(str(root.readlink()), root.name) for root in roots if root.is_symlink()]

    def bound(self) -> list[Path]:
        roots = [Path("/", name) for name in ROOT_NAMES]
        folders = [root for root in roots if root.is_dir() and not root.is_symlink()]
        folders += [folder for folder in SYSTEM_FOLDERS if folder.is_dir()]
        for path in self.readonly:
            if not any(path.is_relative_to(folder) for folder in folders):
                folders.append(path)
        return folders

    def landlock_readable(self) -> list[Path]:
        """What programs may read where nothing is hidden from them by mounts."""
        extra = (Path("/proc"), Path("/sys/devices/system/cpu"))
        return [*self.bound(), *(path for path in extra if path.is_dir()), self.modules]


@dataclass(frozen=True)
class Isolation:
    """One way to isolate programs: probed at start-up, then used for every run."""

    kind: IsolationChoice
    identity: Identity
    view: FileSystemView

    @property
    def own_processes(self) -> bool:
        """Whether a slot has a process namespace, with the init as its first process."""
        return self.kind is IsolationChoice.BWRAP

    def seccomp_profiles(self) -> list[str]:
        """Names of the profiles in ``shared.harness.confinement``."""
        landlock = self.kind is IsolationChoice.LANDLOCK
        return ["COMMON", "NO_NETWORK" if landlock else "LOCAL_SOCKETS"]

    def scratch(self, folder: Path) -> Path:
        """The folder in which the slot with this workspace makes folders for answers' cases."""
        return Path("/tmp") if self.own_processes else folder

    def shared_folders(self, folder: Path) -> list[Path]:
        """The folders that programs can write to and that outlive them."""
        private = [Path("/tmp"), Path("/dev/shm")] if self.own_processes else []
        # The server's folder may lie below, in folders that the programs' user made.
        between = [
            parent for parent in folder.parents if any(path in parent.parents for path in private)
        ]
        return [*private, *between, folder]

    def writable(self, folder: Path) -> list[Path]:
        """What Landlock lets programs write to; the rest of the kernel's rules apply as well."""
        proc = [Path("/proc")] if self.own_processes and not self._owns_proc else []
        return [*self.shared_folders(folder), *proc]

    @property
    def _owns_proc(self) -> bool:
        """Whether programs own the namespaces, and with them their settings below ``/proc``."""
        return self.identity is Identity.NAMESPACE and os.geteuid() == 0

    @property
    def shares_folders(self) -> bool:
        """Whether programs can write to the machine's own folders for temporary files."""
        return self.kind is IsolationChoice.NONE

    def command(self, folder: Path, uid: int, init: list[str]) -> list[str]:
        """Return the command line of a container that runs ``init`` as its first process."""
        dropped = [*self._drop(uid), *init]
        return [*self._bwrap(folder), *dropped] if self.own_processes else dropped

    def _drop(self, uid: int) -> list[str]:
        no_capabilities = ["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
        if self.identity is Identity.SLOT:
            user = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
            if not _holds_setpcap():  # other users lose all capabilities anyway
                no_capabilities.remove("--bounding-set=-all")
            return ["setpriv", *user, *no_capabilities]
        if self.kind is IsolationChoice.LANDLOCK and os.geteuid() == 0:
            return ["setpriv", *no_capabilities]
        return []

    def _bwrap(self, folder: Path) -> list[str]:
        command = ["bwrap", "--die-with-parent", "--as-pid-1", "--unshare-pid", "--unshare-net"]
        command += ["--unshare-ipc", "--unshare-uts"]
        if self.identity is Identity.NAMESPACE:
            command += ["--unshare-user", "--cap-drop", "ALL"]
        for target, name in self.view.root_links():
            command += ["--symlink", target, f"/{name}"]
        command += ["--dev", "/dev", "--proc", "/proc"]
        for private in ("/tmp", "/dev/shm"):
            command += ["--perms", "1777", "--size", str(self.view.tmp_bytes), "--tmpfs", private]
        for path in self.view.bound():
            command += [*_parents(path), "--ro-bind", str(path), str(path)]
        command += [*_parents(folder), "--bind", str(folder), str(folder)]
        # What the program's user may own.
        for mount in (*(["/proc"] if self._owns_proc else []), "/dev/pts", "/dev", "/"):
            command += ["--remount-ro", mount]
        return [*command, "--"]


@cache
def _holds_setpcap() -> bool:
    """Whether this process may empty its bounding set; in some containers root may not."""
    status = Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> CAP_SETPCAP & 1)


def _parents(path: Path) -> list[str]:
    # bwrap creates missing parents with mode 0700, which locks out a program of another user.
    folders = list(path.parents)[:-1]
    return [word for folder in reversed(folders) for word in ("--dir", str(folder))]
