"""Confinement of a process by itself, without any privilege: Landlock and seccomp.

Landlock limits files, TCP and, on newer kernels, signals and abstract sockets; it also keeps a
process from reading or tracing processes outside its domain. seccomp refuses system calls by number
and arguments. Both bind the calling thread and all that it starts afterwards, survive ``exec`` and
cannot be taken back: more rules only restrict further. Call them in a process with one thread.

The module is also loaded as a plain file inside the sandbox: standard library and Python 3.8 only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

PR_SET_NO_NEW_PRIVS = 38
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1
RESTRICT_SELF_LOG_SAME_EXEC_OFF = 1


class ConfinementError(OSError):
    """The kernel refuses a confinement; nothing may run that relies on it."""


# Landlock.

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (
    1 << bit for bit in range(6, 13)
)
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
CHANGE = WRITE_FILE | REMOVE_DIR | REMOVE_FILE
MAKE = MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
WRITE = CHANGE | MAKE | REFER | TRUNCATE
HANDLED_SINCE = {
    1: READ | CHANGE | MAKE | MAKE_CHAR | MAKE_BLOCK,
    2: REFER,
    3: TRUNCATE,
    5: IOCTL_DEV,
}
# The kernel refuses a rule for a file that grants more than these.
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
BIND_TCP, CONNECT_TCP = 1 << 0, 1 << 1
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1 << 0, 1 << 1

DEVICES = {
    "/dev/null": READ_FILE | WRITE_FILE,
    "/dev/full": READ_FILE | WRITE_FILE,
    "/dev/zero": READ_FILE,
    "/dev/random": READ_FILE,
    "/dev/urandom": READ_FILE,
}


# Protections by the version of Landlock's interface that brought them: opening, creating, renaming
# and removing files, and access to other processes; truncating files that may not be written; TCP
# connections; ioctl on devices that the process opens; signals, and connections to abstract Unix
# sockets, of processes that are not confined together with this one.
COVERED_SINCE = {
    "files": 1, "truncation": 3, "tcp": 4, "devices": 5, "signals": 6, "abstract sockets": 6,
}  # fmt: skip


def coverage(abi: int) -> list[str]:
    return [name for name, since in COVERED_SINCE.items() if abi >= since]


def landlock_abi() -> int:
    """Return the version of the kernel's Landlock interface.

    0 means unavailable: an old kernel, Landlock disabled at boot, or a container engine whose own
    seccomp profile refuses the calls.
    """
    try:
        return _syscall(LANDLOCK_CREATE_RULESET, 0, 0, CREATE_RULESET_VERSION)
    except OSError:
        return 0


def restrict_files(
    readonly: Sequence[str], writable: Sequence[str], devices: Mapping[str, int] = DEVICES
) -> list[str]:
    """Confine this thread and all that it starts; return what is covered on this kernel.

    Reading and executing ``readonly`` is allowed, and everything but device nodes in ``writable``.
    Missing paths in ``readonly`` and ``devices`` are left out. Rules name inodes, not paths: a
    folder that is removed and made again is no longer covered. Processes that are confined
    separately cannot trace, read or (see ``COVERED_SINCE``) signal each other or their parents.

    Raises:
        ConfinementError: Landlock is unavailable, or refuses, for example after 16 nested rulesets.
        OSError: A path cannot be opened.
    """
    version = landlock_abi()
    if not version:
        raise ConfinementError(errno.ENOSYS, "this kernel or container offers no Landlock")
    handled = sum(rights for abi, rights in HANDLED_SINCE.items() if abi <= version)
    tcp = BIND_TCP | CONNECT_TCP if version >= 4 else 0
    scopes = SCOPE_SIGNALS | SCOPE_ABSTRACT_SOCKETS if version >= 6 else 0
    # An older kernel accepts fields that it does not know as long as they are zero.
    attributes = struct.pack("=QQQ", handled, tcp, scopes)
    ruleset = _syscall(LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path in writable:
            _allow(ruleset, path, handled & (READ | WRITE))
        for path in filter(os.path.exists, readonly):
            _allow(ruleset, path, handled & READ)
        for path in filter(os.path.exists, devices):
            _allow(ruleset, path, handled & devices[path])
        set_no_new_privs()
        # Denied accesses are the programs' business, and would flood the machine's audit log.
        flags = RESTRICT_SELF_LOG_SAME_EXEC_OFF if version >= 7 else 0
        _syscall(LANDLOCK_RESTRICT_SELF, ruleset, flags)
    finally:
        os.close(ruleset)
    return coverage(version)


def _allow(ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= OF_A_FILE
        rule = struct.pack("=Qi", rights, fd)
        _syscall(LANDLOCK_ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)


# Seccomp: rules.

# Numbers of system calls on x86_64 and aarch64 (None: it does not exist there).
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "accept": (43, 202), "accept4": (288, 242), "acct": (163, 89), "add_key": (248, 217),
    "adjtimex": (159, 171), "bind": (49, 200), "bpf": (321, 280), "chmod": (90, None),
    "chown": (92, None), "chroot": (161, 51), "clock_adjtime": (305, 266),
    "clock_settime": (227, 112), "clone": (56, 220), "clone3": (435, 435), "connect": (42, 203),
    "delete_module": (176, 106), "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "fchown": (93, 55),
    "fchownat": (260, 54), "fcntl": (72, 25), "file_setattr": (469, 469),
    "finit_module": (313, 273), "fremovexattr": (199, 16), "fsconfig": (431, 431),
    "fsetxattr": (190, 7), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "futimesat": (261, None), "init_module": (175, 105), "inotify_add_watch": (254, 27),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_uring_setup": (425, 425),
    "ioctl": (16, 29), "ioperm": (173, None), "iopl": (172, None), "ioprio_set": (251, 30),
    "kcmp": (312, 272), "kexec_file_load": (320, 294), "kexec_load": (246, 104),
    "keyctl": (250, 219), "lchown": (94, None), "listen": (50, 201), "lremovexattr": (198, 15),
    "lsetxattr": (189, 6), "migrate_pages": (256, 238), "modify_ldt": (154, None),
    "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "move_pages": (279, 239), "mq_getsetattr": (245, 185), "mq_notify": (244, 184),
    "mq_open": (240, 180), "mq_timedreceive": (243, 183), "mq_timedsend": (242, 182),
    "mq_unlink": (241, 181), "msgctl": (71, 187), "msgget": (68, 186), "msgrcv": (70, 188),
    "msgsnd": (69, 189), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "open_tree_attr": (467, 467), "perf_event_open": (298, 241),
    "personality": (135, 92), "pidfd_getfd": (438, 438), "pivot_root": (155, 41),
    "prctl": (157, 167), "prlimit64": (302, 261), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "reboot": (169, 142), "removexattr": (197, 14),
    "removexattrat": (466, 466), "request_key": (249, 218), "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "setfsgid": (123, 152), "setfsuid": (122, 151), "setgid": (106, 144), "setgroups": (116, 159),
    "setregid": (114, 143), "setresgid": (119, 149), "setresuid": (117, 147),
    "setreuid": (113, 145), "setuid": (105, 146),
    "semctl": (66, 191), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192),
    "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268),
    "setpriority": (141, 140), "settimeofday": (164, 170), "setxattr": (188, 5),
    "setxattrat": (463, 463), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197),
    "shmget": (29, 194), "socket": (41, 198), "socketpair": (53, 199), "swapoff": (168, 225),
    "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "utime": (132, None), "utimensat": (280, 88), "utimes": (235, None),
    "vhangup": (153, 58),
}  # fmt: skip
# The rules have been thought through up to this call; a later one does not exist for programs.
LAST_KNOWN = 469
AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

CLONE_PARENT, CLONE_NEW = 0x8000, 0x7E020000  # CLONE_NEW: all CLONE_NEW... flags
PR_SCHED_CORE = 62
F_SET_RW_HINT, F_SET_FILE_RW_HINT = 1036, 1038
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
FILE_SYSTEM_REQUESTS = (*(ord(kind) << 8 for kind in "fvX"), 0x9400)  # the last: Btrfs
AF_UNIX, SOCK_STREAM, SOCK_SEQPACKET, SOCK_TYPE = 1, 1, 5, 0xF
QUERY_PERSONALITY = 0xFFFFFFFF
PRETENDED = 0  # the call returns 0 and does nothing


class Check(NamedTuple):
    """A condition on the lower 32 bits of an argument, masked: one of ``values``, or none."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    one_of: bool = True


class Rule(NamedTuple):
    """A system call that fails with ``errno`` unless all ``checks`` hold; always without checks."""

    errno: int
    checks: tuple[Check, ...] = ()


def _refuse(error: int, names: str) -> dict[str, Rule]:
    return {name: Rule(error) for name in names.split()}


def _only(argument: int, *values: int) -> Rule:
    return Rule(errno.EPERM, (Check(argument, values),))


# For every program. Whatever outlives its processes in the kernel, reaches another process (its
# parents have the same user) or changes the machine is refused, and what only privileged processes
# or debuggers need. ENOSYS looks like a kernel without the feature, for which libraries have a
# fallback: after it glibc calls clone instead of clone3, whose flags lie in memory.
COMMON: dict[str, Rule] = {
    **_refuse(
        errno.EPERM,
        # other processes
        "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise "
        "process_mrelease "
        # keyrings outlive their processes
        "add_key keyctl request_key "
        # namespaces and mounts
        "setns unshare chroot pivot_root mount umount2 mount_setattr move_mount open_tree "
        "open_tree_attr fsopen fsconfig fsmount fspick name_to_handle_at open_by_handle_at "
        # the machine
        "acct adjtimex clock_adjtime clock_settime delete_module finit_module init_module ioperm "
        "iopl kexec_file_load kexec_load quotactl quotactl_fd reboot setdomainname sethostname "
        "settimeofday swapoff swapon syslog vhangup "
        # users: the kernel's own refusal depends on whether the slot is a user namespace
        "setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups "
        "chown lchown fchown fchownat "
        # large parts of the kernel in which most exploits begin
        "bpf fanotify_init fanotify_mark modify_ldt perf_event_open userfaultfd",
    ),
    **_refuse(
        errno.ENOSYS,
        "clone3 io_uring_enter io_uring_register io_uring_setup "
        # System V IPC and POSIX message queues outlive their processes
        "semctl semget semop semtimedop shmat shmctl shmdt shmget msgctl msgget msgrcv msgsnd "
        "mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink",
    ),
    # CLONE_PARENT would make a sibling, which is not found among the program's descendants.
    "clone": Rule(errno.EPERM, (Check(0, (0,), mask=CLONE_NEW | CLONE_PARENT),)),
    # Each process may change its own scheduling and limits (pid 0), not those of its parents.
    "ioprio_set": Rule(errno.EPERM, (Check(0, (1,)), Check(1, (0,)))),
    "migrate_pages": _only(0, 0),
    "move_pages": _only(0, 0),
    "prlimit64": _only(0, 0),
    "sched_setaffinity": _only(0, 0),
    "sched_setattr": _only(0, 0),
    "sched_setparam": _only(0, 0),
    "sched_setscheduler": _only(0, 0),
    "setpriority": Rule(errno.EPERM, (Check(0, (0,)), Check(1, (0,)))),
    "personality": _only(0, 0, QUERY_PERSONALITY),
    # Core scheduling's cookies can be pushed to other processes.
    "prctl": Rule(errno.EPERM, (Check(0, (PR_SCHED_CORE,), one_of=False),)),
    # A write hint stays with the inode, even of a file that is read-only.
    "fcntl": Rule(errno.EINVAL, (Check(1, (F_SET_RW_HINT, F_SET_FILE_RW_HINT), one_of=False),)),
    # They type into the terminal, or set flags, version, project or keys of a folder.
    "ioctl": Rule(
        errno.EPERM,
        (
            Check(1, (TIOCSTI, TIOCLINUX), one_of=False),
            Check(1, FILE_SYSTEM_REQUESTS, mask=0xFF00, one_of=False),
        ),
    ),
    "file_setattr": Rule(errno.EOPNOTSUPP),
}

# For programs in the machine's own network namespace. Landlock governs TCP alone, and no connection
# to an existing Unix socket by its path (an engine's or a session bus's socket is a way out), so no
# socket can be created: UDP, raw, netlink, vsock and Unix sockets included. socketpair, which
# asyncio and multiprocessing's pipes need, stays for the types that cannot send elsewhere.
NO_NETWORK: dict[str, Rule] = {
    **_refuse(errno.EPERM, "socket bind connect listen accept accept4"),
    "socketpair": Rule(
        errno.EPERM,
        (Check(0, (AF_UNIX,)), Check(1, (SOCK_STREAM, SOCK_SEQPACKET), mask=SOCK_TYPE)),
    ),
}

# For programs that run one after another in one network namespace of their own: TCP's states, and
# the counters of interfaces and protocols, would outlive them. Unix sockets do not.
LOCAL_SOCKETS: dict[str, Rule] = {"socket": _only(0, AF_UNIX)}

# For programs that share files with their server, as the same user: calls that Landlock does not
# govern. Attributes of any file of this user could be changed, and would tell the next program
# something, so changing modes and times is pretended (nobody relies on it, but tools fail without)
# and the rest refused. Watching folders would show the files of other programs. Compilers cannot
# run under it: their linker makes its output executable.
FIXED_ATTRIBUTES: dict[str, Rule] = {
    **_refuse(PRETENDED, "chmod fchmod fchmodat fchmodat2 utime utimes futimesat utimensat"),
    **_refuse(errno.EPERM, "chown lchown fchown fchownat"),
    **_refuse(
        errno.EOPNOTSUPP,
        "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr "
        "removexattrat file_setattr",
    ),
    **_refuse(errno.EACCES, "inotify_add_watch"),
    # Only the terminals' requests, FIONREAD and FIONBIO among them: no flags of file systems.
    "ioctl": Rule(errno.ENOTTY, (Check(1, (0x5400,), mask=0xFFFFFF00),)),
}


# Seccomp: the filter, a program of classic BPF.

LOAD, AND, JUMP, JUMP_EQUAL, JUMP_NOT_LESS, RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
NUMBER_OFFSET, ARCHITECTURE_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16
SECCOMP_SYSCALL = {"x86_64": 317, "aarch64": 277}
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4


class Instruction(NamedTuple):
    """An instruction of classic BPF: operation, jumps if true and if false, operand."""

    code: int
    if_true: int
    if_false: int
    operand: int


def compile_filter(*profiles: Mapping[str, Rule], machine: str = "") -> bytes:
    """Compile a seccomp filter for ``machine`` (as in ``uname -m``; this one by default).

    It refuses what any of the profiles refuses. A process that calls the kernel as a foreign
    architecture (32-bit code) is killed. The filter reads arguments only where a rule has checks,
    so that Linux 5.11 and later know in advance which calls are always allowed and do not run it
    for them.

    Raises:
        ConfinementError: The machine is neither x86_64 nor aarch64.
    """
    machine = machine or os.uname().machine
    if machine not in AUDIT_ARCHITECTURES:
        raise ConfinementError(errno.ENOSYS, f"no seccomp filter for machines of type {machine!r}")
    column = list(AUDIT_ARCHITECTURES).index(machine)
    program = [
        Instruction(LOAD, 0, 0, ARCHITECTURE_OFFSET),
        Instruction(JUMP_EQUAL, 1, 0, AUDIT_ARCHITECTURES[machine]),
        Instruction(RETURN, 0, 0, KILL_PROCESS),
        Instruction(LOAD, 0, 0, NUMBER_OFFSET),
    ]
    for name in sorted({name for profile in profiles for name in profile}):
        number = NUMBERS[name][column]
        if number is not None:
            block = _block([profile[name] for profile in profiles if name in profile])
            program += [Instruction(JUMP_EQUAL, 0, len(block), number), *block]
    program += [
        Instruction(JUMP_NOT_LESS, 0, 1, LAST_KNOWN + 1),
        Instruction(RETURN, 0, 0, ERRNO | errno.ENOSYS),
        Instruction(RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def install_filter(program: bytes) -> None:
    """Install a compiled filter for the calling thread and all that it starts from now on.

    Raises:
        ConfinementError: The kernel refuses.
    """
    set_no_new_privs()
    code = ctypes.create_string_buffer(program, len(program))
    argument = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    number = SECCOMP_SYSCALL[os.uname().machine]
    # Without the flag older kernels slow down the whole process for a flaw of the processor that
    # concerns secrets in the same process.
    try:
        _syscall(number, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, argument)
    except ConfinementError:
        _syscall(number, SECCOMP_SET_MODE_FILTER, 0, argument)


def install_seccomp(*profiles: Mapping[str, Rule]) -> None:
    """Compile and install a filter of ``profiles``: ``COMMON`` and, by the rung, more."""
    install_filter(compile_filter(*profiles))


def _block(rules: Sequence[Rule]) -> list[Instruction]:
    """Return the code for one system call, which ends in each way with a decision."""
    block: list[Instruction] = []
    for rule in rules:
        refuse = Instruction(RETURN, 0, 0, ERRNO | rule.errno)
        if not rule.checks:
            return [*block, refuse]
        for check in rule.checks:
            block += [*_compare(check), refuse]
    return [*block, Instruction(RETURN, 0, 0, ALLOW)]


def _compare(check: Check) -> list[Instruction]:
    """Return code that jumps over the instruction after it if the check holds."""
    code = [
        Instruction(LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * check.argument),
        Instruction(AND, 0, 0, check.mask),
    ]
    count = len(check.values)
    for index, value in enumerate(check.values):
        code.append(Instruction(JUMP_EQUAL, count - index + check.one_of, 0, value))
    return [*code, Instruction(JUMP, 0, 0, 0 if check.one_of else 1)]


# System calls.


def set_no_new_privs() -> None:
    """Give up set-user-ID programs and file capabilities for good, as both confinements require."""
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise ConfinementError(ctypes.get_errno(), "cannot set no_new_privs")


def _syscall(number: int, *arguments: int | bytes) -> int:
    words = [word if isinstance(word, bytes) else ctypes.c_long(word) for word in arguments]
    result: int = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        code = ctypes.get_errno()
        raise ConfinementError(code, os.strerror(code))
    return result
