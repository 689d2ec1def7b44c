"""Init of a slot's container: forks one program after another, and cleans up after each.

It runs in the sandbox, not in the server. Standard library only; it is loaded from source, after
``cases`` and ``confinement``. It never executes or parses anything of a request but its own orders,
so that nothing of one program is in the memory that the next one inherits.

Control socket (SOCK_SEQPACKET, JSON): the server sends an order with file descriptors and gets one
report when the program has ended, all its processes are dead and its files are removed. During the
run it may send ``kill``. When the server is gone, the init kills everything and exits. Time limits
and output limits are enforced here, and a command's pipes are fed and drained here, so that a
server that is busy with something else changes neither the end of a program nor its time.

The init is process 1 of the container where there is a process namespace: programs cannot signal
it, and one ``kill(-1)`` reaches all of them. Elsewhere it adopts orphans (child subreaper) and
kills its children until none is left. It is not dumpable, so its memory and ``/proc`` entry are out
of a program's reach; a seccomp filter denies what would change its priority, limits or affinity.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import gc
import json
import os
import resource
import select
import signal
import socket
import stat
import sys
import time

from shared.harness import confinement
from shared.harness.cases import syscalls
from shared.harness.cases.answer import HIGHEST, Cases
from shared.harness.cases.files import CallSpec, PublicFolder, SharedFolder, inner_paths
from shared.harness.cases.processes import children, is_stopped
from shared.harness.cases.program import PRELOADED, Program
from shared.harness.cases.streams import FiledOutput, Streams
from shared.harness.cases.supervisor import Ended, Run, Supervisor
from shared.harness.functions import FunctionRun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, NoReturn

# Seconds between two looks at the disk while a program runs, or this many times what one look took.
DISK_SECONDS, DISK_SHARE = 0.05, 10
# Files that a program may have, and that a disk must have left.
MOST_FILES, LEAST_FILES = 100_000, 1000
# Levels of folders that a program may nest.
DEEPEST = 200
FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Bytes of an order. A much larger buffer would be mapped and unmapped each time, which takes long.
ORDER_LIMIT = 64 * 1024
# Exit codes of a shell for a command that it cannot execute.
CANNOT_EXECUTE, NOT_FOUND = 126, 127
# Modules that register work to do after each fork (``threading`` and ``random``), import one that
# does, or map large libraries: each of them would make all forks slower. An answer's zygote imports
# them when the answer does.
COLD = {"decimal", "fractions", "hashlib", "numpy", "queue", "random", "statistics", "threading"}
# Loaded once: a program that imports them finds them in ``sys.modules`` after the fork.
WARM = sorted(PRELOADED - COLD)


class ServerLostError(Exception):
    """The server closed the control socket."""


class Confinement(syscalls.Confinement):
    """Restrictions by Landlock and seccomp, of the whole slot and of each program.

    A program is in a Landlock domain of its own, so that it can neither signal nor read the
    processes of the slot, and can write to its own folder and the shared ones alone.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.writable: list[str] = settings["writable"]
        self.shared = [path for path in self.writable if path != settings["folder"]]
        self.readonly: list[str] = settings["readonly"]
        self.profiles = [getattr(confinement, name) for name in settings["profiles"]]
        self.files: bool = settings["landlock"]  # no mounts hide them
        self.required: bool = settings["required"]
        self.fixed = self.files and confinement.compile_filter(confinement.FIXED_ATTRIBUTES)
        self.landlock = False

    def enter(self) -> list[str]:
        """Restrict this process; return what is covered.

        Raises:
            ConfinementError: The kernel refuses a restriction that the isolation relies on.
        """
        covered: list[str] = []
        if not self.profiles:
            return covered
        try:
            confinement.install_seccomp(*self.profiles)
            covered.append("system calls")
        except OSError:
            if self.required:
                raise
        kernel = confinement.coverage(confinement.landlock_abi())
        if self.files:
            covered += confinement.restrict_files(self.readonly, self.writable)
        if self.required and kernel:
            self.landlock = True
            covered.append("files of other programs")
        if "signals" in kernel:
            covered.append("signals between programs")
        return covered

    def enter_program(self, own: str) -> None:
        """Restrict a program to its ``own`` folder and the shared ones."""
        if self.landlock:
            # The slot's own domain names the devices; one rule for all of them is faster.
            devices = {"/dev": confinement.READ_FILE | confinement.WRITE_FILE}
            confinement.restrict_files(["/"], [*self.shared, own], devices)
        elif self.profiles:
            syscalls.scope_signals()

    def fix_attributes(self) -> None:
        """Keep the attributes of files as they are; a compiler could not run any more."""
        if self.fixed:
            confinement.install_filter(self.fixed)


class Init(Supervisor):
    """The init: its settings, the shared folders, and its own process attributes."""

    confinement: Confinement

    def __init__(self, control: int, settings: dict[str, Any], extra_memory: int) -> None:
        super().__init__()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # so that process 1 ignores it
        self.extra_memory = extra_memory  # bytes that no program has to pay for
        self.confinement = Confinement(settings)
        self.control = socket.socket(fileno=control)
        self.others = [control]
        self.owns_processes: bool = settings["owns_processes"]
        self.folder: str = settings["scratch"] + "/answer"  # of one answer after another
        # Once for all of them; commands have an environment of their own.
        for name in ("PWD", "HOME", "TMPDIR"):
            if name != "TMPDIR" or name in os.environ:
                os.environ[name] = self.folder + "/case"
        self.disk = Disk(settings["folder"], settings["disk_limit"], settings["disk_reserve"])
        workspace: str = settings["folder"]
        writable = [path for path in settings["roots"] if os.access(path, os.W_OK)]
        self.roots: list[SharedFolder] = [
            # Folders of the machine that are mounted below stay, as everything that is there now;
            # in the workspace these may be files of the first request.
            SharedFolder(
                path,
                [*settings["keep"], *(inner_paths(path) if path != workspace else ())],
            )
            for path in writable
        ]
        if settings["own_user"]:
            self.roots += PublicFolder.all_of(os.geteuid(), settings["keep"])
        self.attributes = attributes()

    def serve(self) -> Program:
        """Run orders; returns only in the cases of an answer."""
        while True:
            order, fds = self.receive()
            if order["kind"] == "kill":
                continue  # the program has ended in the meantime
            self.ended = Ended()
            run = self.run_of(order, fds)
            program = run.start() if isinstance(run, FunctionRun) else self.start(run, order, fds)
            if program is not None:
                return program
            self.report(run, order)
            for fd in fds:
                os.close(fd)

    def run_of(self, order: dict[str, Any], fds: list[int]) -> Run:
        """Return the run of a command, of the cases of an answer, or of tests of its functions."""
        if order["kind"] == "exec":
            return Command(order["seconds"], self.ended, fds, order["output_limit"])
        os.mkdir(self.folder, 0o700)
        if order["kind"] == "cases":
            return Run(order["seconds"], self.ended)
        spec = CallSpec(order["spec"].encode())
        if spec.numbers["memory"] > 0:
            spec.numbers["memory"] += self.extra_memory
        return FunctionRun(self, spec, fds)

    def start(self, run: Run, order: dict[str, Any], fds: list[int]) -> Program | None:
        """Start a command, or the cases of an answer; returns the program only in those."""
        program = run.fork(lambda: self.child(order, fds, run), CANNOT_EXECUTE)
        if program is None and isinstance(run, Command):
            run.streams.close_ends()
        return program

    def report(self, run: Run, order: dict[str, Any]) -> None:
        self.look = run.began + DISK_SECONDS
        reason = self.wait(run)
        run.stop()
        if self.disk.full():
            reason = "disk full"
        seconds = time.monotonic() - run.began
        clean = self.sweep(self.owns_processes)
        if isinstance(run, FunctionRun) and reason in ("ended", "timeout"):
            run.record()
        run.close()
        if run.full and reason not in ("disk full", "disk limit"):
            reason = "output limit"
        clean = clean and self.tidy(order.get("cwd")) and self.attributes == attributes()
        status = self.ended.codes.get(run.pid) if reason == "ended" else None
        message = {"status": status, "reason": reason, "seconds": seconds, "clean": clean}
        self.control.send(json.dumps(message).encode())

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        message, fds, _, _ = socket.recv_fds(self.control, ORDER_LIMIT, 3)
        if not message:
            raise ServerLostError
        return json.loads(message), list(fds)

    def interrupt(self, run: Run) -> str | None:
        """Return why a run must end: the disk, or that the server wants it."""
        now = time.monotonic()
        if now >= self.look:
            if self.disk.full():
                return "disk full"
            if self.disk.exceeded(run.pid):
                return "disk limit"
            if not isinstance(run, (Command, FunctionRun)) and is_stopped(run.pid):
                return "killed"  # the supervisor of an answer's cases, by the answer
            self.look = now + max(DISK_SECONDS, DISK_SHARE * (time.monotonic() - now))
        if select.select([self.control], [], [], 0)[0]:
            self.receive()
            return "killed"
        return None

    def until_interrupt(self) -> float:
        return max(0.0, self.look - time.monotonic())

    # In the child

    def leave(self) -> None:
        super().leave()
        # Not by the module signal, whose enumerations take a quarter of a millisecond here.
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        for fd in (self.disk.fd, self.control.detach()):
            os.close(fd)

    def child(self, order: dict[str, Any], fds: list[int], run: Run) -> Program:
        self.leave()
        if not isinstance(run, Command):
            for root in self.roots:
                root.keep |= {self.folder}
            return Cases(self.folder, None, self.confinement, self.roots, fds).serve()
        self.confinement.enter_program(order["cwd"])
        if not order["compiles"]:
            self.confinement.fix_attributes()
        run.adopt()
        return execute(order)

    # After the program

    def tidy(self, workspace: str | None) -> bool:
        """Restore the shared folders; returns whether it worked.

        The server reads the files in ``workspace`` and removes them.
        """
        try:
            for root in self.roots:
                root.restore(workspace)
        except OSError:
            return False
        return True


class Command(Run):
    """A command, whose input and outputs are files.

    Nothing of them stays in this process, whose memory the next program inherits.
    """

    def __init__(self, seconds: float, ended: Ended, files: list[int], limit: int) -> None:
        super().__init__(seconds, ended)
        outputs = [FiledOutput(file, limit) for file in files[1:]]
        self.streams: Streams = Streams(os.dup(files[0]), True, *outputs)
        self.quiet = False

    def adopt(self) -> None:
        """Make them the standard streams of this process; close all other descriptors."""
        for number, fd in enumerate(self.streams.ends):
            os.dup2(fd, number)
        os.closerange(3, HIGHEST)


class Disk:
    """The disk that a program shares with the server and other programs."""

    def __init__(self, folder: str, limit: int, reserve: int) -> None:
        # A program may make the folder's path unusable.
        self.fd = os.open(folder, os.O_RDONLY | FOLDER)
        self.limit = limit
        self.reserve = reserve
        self.device = os.fstat(self.fd).st_dev

    def full(self) -> bool:
        """Whether so little is left that programs may fail for lack of it."""
        disk = os.statvfs(self.fd)
        few_files = disk.f_files > 0 and disk.f_favail < LEAST_FILES
        return few_files or disk.f_bavail * disk.f_frsize < self.reserve

    def exceeded(self, pid: int) -> bool:
        """Whether a program has more files, or in them more bytes, than it may have.

        Files that it has removed but keeps open count too.
        """
        seen: set[int] = set()
        size = 0
        try:
            for file in self.files(pid):
                if file.st_dev == self.device and file.st_ino not in seen:
                    seen.add(file.st_ino)
                    size += file.st_blocks * 512
                    if size > self.limit or len(seen) > MOST_FILES:
                        return True
        except TooDeepError:
            return True
        return False

    def files(self, pid: int) -> Iterator[os.stat_result]:
        yield from below(self.fd)
        for process in descendants(pid):
            for status in opened("/proc/%d/fd" % process):
                if stat.S_ISREG(status.st_mode):
                    yield status


class TooDeepError(Exception):
    """A program has nested folders deeper than ``DEEPEST``."""


def below(folder: int, depth: int = 0) -> Iterator[os.stat_result]:
    """Yield attributes of what is below a folder, which has permissions for that meanwhile.

    Folders are opened one in another: the program, which may lock a folder or put a link in its
    place, decides neither which modes change here nor what is seen.

    Raises:
        TooDeepError: Each level needs a descriptor.
    """
    if depth > DEEPEST:
        raise TooDeepError
    path = "/proc/self/fd/%d" % folder
    try:
        mode = stat.S_IMODE(os.fstat(folder).st_mode)
        locked = mode & 0o500 != 0o500
        if locked:
            os.chmod(path, mode | 0o700)
        for name in os.listdir(path):
            try:
                status = os.lstat(name, dir_fd=folder)
                yield status
                if stat.S_ISDIR(status.st_mode):
                    inner = os.open(name, os.O_PATH | FOLDER, dir_fd=folder)
                    try:
                        yield from below(inner, depth + 1)
                    finally:
                        os.close(inner)
            except OSError:
                continue
        if locked:
            os.chmod(path, mode)
    except OSError:
        pass


def opened(folder: str) -> Iterator[os.stat_result]:
    """Yield attributes of the open files in a folder of descriptors, if it can be read."""
    try:
        for name in os.listdir(folder):
            try:
                yield os.stat(folder + "/" + name)
            except OSError:
                continue
    except OSError:
        pass


def descendants(pid: int) -> Iterator[int]:
    """Yield all processes of a program, orphans included: they are children of the init."""
    todo = {pid, *children()}
    while todo:
        process = todo.pop()
        yield process
        todo.update(children(process))


def address_space() -> int:
    """Return the bytes of this process's address space."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def attributes() -> object:
    """Return the process attributes that children inherit and others with this user may change."""
    limits = [resource.getrlimit(kind) for kind in range(16)]
    scheduling = os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))
    return os.getpriority(os.PRIO_PROCESS, 0), scheduling, limits


def execute(order: dict[str, Any]) -> NoReturn:
    """Become the program of an order."""
    for handled in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(handled, signal.SIG_DFL)
    try:
        os.chdir(order["cwd"])
        for kind, value in order["limits"]:
            syscalls.limit(kind, value)
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except OSError as error:
        text = "%s: %s\n" % (order["argv"][0], error.strerror)
        os.write(2, text.encode("utf-8", "backslashreplace"))
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE)
    except MemoryError:
        os._exit(CANNOT_EXECUTE)


def main(control: int, settings: dict[str, Any]) -> Program:
    """Prepare the slot, announce it, and serve; returns only in the cases of an answer."""
    # What the server may have leaked.
    os.closerange(control + 1, os.sysconf("SC_OPEN_MAX"))
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    os.umask(0o022)
    for name in WARM:
        __import__(name)
    before = address_space()
    for name in settings["warm"]:
        try:
            __import__(name)
        except ImportError:
            break
    init = Init(control, settings, address_space() - before)
    covered = init.confinement.enter()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    sys.orig_argv[1:] = sys.argv[:] = ["program"]
    gc.collect()
    gc.freeze()  # keeps pages shared with the children (copy on write)
    init.control.send(json.dumps({"ready": covered}).encode())
    try:
        return init.serve()
    except (ServerLostError, OSError):
        init.sweep(init.owns_processes)
        os._exit(0)
