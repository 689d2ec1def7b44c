"""System calls that the standard library lacks or makes slow, and privileges of answers.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import os
import resource
import struct
import sys

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    import types
    from collections.abc import Callable
    from typing import Any

KEPT: list[types.FrameType] = []
SIGINT, SIGKILL, SIGPIPE, SIGALRM, SIGSTOP, SIGXFSZ = 2, 9, 13, 14, 19, 25
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF = 444, 446
# A Landlock ruleset that handles no files and no ports, only signals; a flag against log entries.
SIGNALS_ALONE, LOG_OFF = b"\0" * 16 + b"\2" + b"\0" * 7, 1
try:
    import _ctypes  # ctypes itself takes milliseconds to load

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL

    class LockedFunction(_ctypes.CFuncPtr):  # keeps the interpreter's lock
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI

    class Char(_ctypes._SimpleCData):  # type: ignore[type-arg]
        _type_ = "c"

    def c_array(data: bytes) -> object:
        """Return an array of C with the data; as an argument it is a pointer."""
        array: Any = (Char * len(data))()
        array.raw = data
        return array

    def c_function(name: str, kind: type = Function) -> Callable[..., Any]:
        this_program: Any = None
        function: Callable[..., Any] = kind(_ctypes.dlsym(_ctypes.dlopen(this_program, 0), name))
        return function

    _prctl, _fflush = c_function("prctl"), c_function("fflush")
    _syscall = c_function("syscall")
    _fork = c_function("fork", LockedFunction)
    _array: Callable[..., Any] = c_array
    _address: Callable[..., Any] = _ctypes.addressof
except (ImportError, OSError, AttributeError):
    _prctl = _fflush = _syscall = lambda *_: -1
    _array = _address = lambda *_: None
    _fork = os.fork


def prctl(option: int, value: int) -> None:
    _prctl(option, value, 0, 0, 0)


def scope_signals() -> None:
    """Keep this process and its descendants from signalling any other process.

    Has no effect before Linux 6.12 and where Landlock is unavailable.
    """
    ruleset = _syscall(LANDLOCK_CREATE_RULESET, SIGNALS_ALONE, len(SIGNALS_ALONE), 0)
    if ruleset < 0:
        return
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if _syscall(LANDLOCK_RESTRICT_SELF, ruleset, LOG_OFF) < 0:  # a flag since Linux 6.15
        _syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def install_filter(program: bytes) -> None:
    """Refuse system calls to this process and all that it starts, if the kernel permits it."""
    code = _array(program)
    if code is None:
        return
    argument = _array(struct.pack("@HP", len(program) // 8, _address(code)))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, argument, 0, 0)


def fork() -> int:
    """Fork a process with one thread, without the functions that modules register for it.

    Those of ``threading`` and ``random`` cost as much as the fork itself. ``renew`` does in the
    child what remains of their work.
    """
    pid: int = _fork()
    if pid < 0:
        raise OSError("cannot fork")
    if pid == 0:
        keep_frames()
    return pid


def watch(pid: int) -> int:
    """Return a descriptor that is readable once a child has ended; -1 where there is none."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):  # Linux before 5.3, Python before 3.9
        return -1


def keep_frames() -> None:
    """Let what the callers' frames refer to outlive them.

    A child that returns to the outermost frame would otherwise free it all, and so copy its pages.
    """
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        KEPT.append(frame)
        frame = frame.f_back


def renew() -> None:
    """Give a forked program random numbers and a thread of its own."""
    modules = sys.modules
    if "random" in modules:
        modules["random"].seed()
    if "numpy.random.mtrand" in modules:
        modules["numpy.random"].seed()
    if "threading" in modules:
        modules["threading"].main_thread()._set_native_id()


def limit(kind: int, value: int) -> None:
    value = within(kind, value)
    resource.setrlimit(kind, (value, value))


def within(kind: int, value: int) -> int:
    """Return ``value``, or the hard limit if that is less."""
    _, hard = resource.getrlimit(kind)
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


# Privileges that an answer does not get: the user, and the system calls.


def own_user(folder: str) -> int | None:
    """Return an unused user id for answers, if this is root and others can read the interpreter."""
    if os.geteuid() != 0:
        return None
    for path in (os.path.realpath(sys.executable), os.__file__, os.path.dirname(folder)):
        while path != "/":
            if not os.stat(path).st_mode & 0o001 << (2 * os.path.isfile(path)):
                return None
            path = os.path.dirname(path)
    # The second range is for user namespaces that have no such large ids.
    for first, count in ((1 << 30, 1 << 30), (40000, 20000)):
        user = first + int.from_bytes(os.urandom(8), "big") % count
        if can_become(user):
            return user
    return None


def can_become(user: int) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            become(user)
        except OSError:
            os._exit(1)  # root of a user namespace without other users
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def become(user: int) -> None:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


class Confinement:
    """Restrictions of a zygote in a slot; none where the harness arrives as files."""

    def enter_program(self, own: str) -> None:
        """Restrict this process, which may write to the folder ``own``."""

    def enter_user(self) -> None:
        """Become the user of the answers, if they have one, and restrict it."""

    def fix_attributes(self) -> None:
        """Forbid to change attributes of files, once the compiler has run."""


class CallFilter(Confinement):
    """User and filter of system calls where the harness arrives as files.

    The filter refuses what outlives a case (keyrings, System V IPC and message queues), and what a
    slot refuses besides. It would refuse the change of the user, too.
    """

    def __init__(self, folder: str, user: int | None) -> None:
        self.user = user
        try:
            with open(folder + "/filter-" + os.uname().machine, "rb") as file:
                self.program = file.read()
        except OSError:
            self.program = b""

    def enter_program(self, own: str) -> None:
        if self.program and self.user is None:
            install_filter(self.program)

    def enter_user(self) -> None:
        if self.user is None:
            return
        become(self.user)
        if self.program:
            install_filter(self.program)
