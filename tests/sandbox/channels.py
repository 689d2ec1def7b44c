"""Channels between programs: pairs of programs, one leaves a message, the other looks for it.

``leave`` and ``look`` are Python; both have ``PRELUDE`` before them, ``leave`` the variable
``MESSAGE`` as well. ``look`` prints what it sees, which must be the same before and after.
"""

from dataclasses import dataclass

# Matches a message, but not the source of a program that looks for one.
PATTERN = r"MSG-[0-9a-f]{32}"

PRELUDE = r"""
import contextlib, ctypes, errno, fcntl, glob, json, os, re, resource, signal, socket, struct, sys
import time
libc = ctypes.CDLL(None, use_errno=True)
PATTERN = rb"MSG-[0-9a-f]{32}"
STAMP = 1234567890
def attempt(function, *words):
    try:
        return function(*words)
    except (OSError, ValueError, AttributeError) as error:
        return None
def read(path):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(fd, "rb", 0) as file:
            return file.read(100_000) or b""
    except (OSError, ValueError):
        return b""
def parents(path):
    while True:
        yield path
        if path == "/":
            return
        path = os.path.dirname(path)
def folders():
    roots = ["/", "/dev", "/dev/shm", "/dev/mqueue", "/dev/pts", "/tmp", "/var/tmp", "/run",
             "/run/lock", "/var/lock", "/proc", "/proc/self", "/proc/sys/kernel", "/sys", "/usr",
             "/usr/lib", "/etc", "/opt", "/root", "/home", "/mnt", "/srv", sys.prefix,
             os.path.dirname(os.__file__)]
    roots += [os.environ["HOME"], os.environ.get("TMPDIR", "/tmp"), *parents(os.getcwd())]
    return sorted({os.path.realpath(path) for path in roots if os.path.isdir(path)})
def shared():
    # The folder of a case is a new one each time.
    return [path for path in folders() if not re.search("/answer(/case)?$", path)]
def ours():
    # A test that fails must not change the permissions of the system.
    system = ("/proc", "/sys", "/usr", "/etc", "/opt", "/run", "/home", "/mnt", "/srv", sys.prefix)
    return [path for path in [*shared(), EXTRA] if path != "/" and not path.startswith(system)]
def inner(path):
    names = attempt(os.listdir, path) or [] if not path.startswith(("/proc", "/sys")) else []
    return [f"{path}/{name}" for name in names]
def wait_for(pid):
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
def daemon(work):
    # Returns once ``work`` is done, whatever becomes of the process.
    out, told = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open("/dev/null", os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            kept = attempt(work)
            os.write(told, b"x")
            while True:
                signal.pause()
        os._exit(0)
    os.close(told)
    os.read(out, 1)
    wait_for(first)
def pids():
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
def show(*values):
    print(json.dumps(values, default=str, sort_keys=True), flush=True)
"""


@dataclass(frozen=True)
class Channel:
    """One way to leave a message.

    Attributes:
        local: The message can only be left in a process, so nothing keeps it even in an unguarded
            slot; the program that leaves it finds it itself.
        ways: The endpoints in which it makes sense.
    """

    leave: str
    look: str
    local: bool = False
    ways: tuple[str, ...] = ("run_code", "run_cases")


FILES_LOOK = r"""
found = []
for folder in folders():
    for path in inner(folder):
        text = path.encode() + read(path) if os.path.isfile(path) else path.encode()
        found += re.findall(PATTERN, text)
        if os.path.islink(path):
            found += re.findall(PATTERN, os.readlink(path).encode())
show(sorted(set(map(bytes.decode, found))))
"""

MODES_LOOK = r"""
seen = {}
for path in [*shared(), EXTRA, EXTRA + "/file"]:
    if os.path.exists(path) and not path.startswith(("/proc", "/sys")):
        found = os.stat(path)
        # A workspace that is replaced has another name.
        name = re.sub("/tmp_plumbline_[a-z0-9_]{8}(?=/|$)", "/workspace", path)
        seen[name] = [oct(found.st_mode), found.st_uid]
show(seen)
"""

PROCESSES_LOOK = r"""
found = []
for pid in pids():
    if pid != os.getpid():
        for name in ("cmdline", "comm", "environ", "maps"):
            found += re.findall(PATTERN, read(f"/proc/{pid}/{name}"))
        for fd in attempt(os.listdir, f"/proc/{pid}/fd") or []:
            found += re.findall(PATTERN, (attempt(os.readlink, f"/proc/{pid}/fd/{fd}") or "").encode())
            found += re.findall(PATTERN, read(f"/proc/{pid}/fd/{fd}")[:200])
show(sorted(set(map(bytes.decode, found))))
"""  # noqa: E501

MODES = {
    "modes of folders": "attempt(os.chmod, path, 0o3777)",
    "closed folders": "attempt(os.chmod, path, 0)",
}

OWN_STATE_LOOK = r"""
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines())
names = "SigBlk SigIgn SigCgt SigPnd ShdPnd CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp"
show(
    os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0)),
    [resource.getrlimit(kind) for kind in range(16) if kind != resource.RLIMIT_NPROC],
    libc.syscall(ctypes.c_long(252), 1, 0),  # ioprio_get
    libc.personality(ctypes.c_ulong(0xFFFFFFFF)), attempt(os.umask, 0o22),
    {name: status[name].strip() for name in names.split() if name in status},
    [read(f"/proc/self/{name}").decode() for name in ("oom_score_adj", "timerslack_ns",
     "coredump_filter", "comm")], read(f"/proc/{os.getppid()}/comm").decode(),
    read(f"/proc/{os.getppid()}/oom_score_adj").decode(),
    {name: value for name, value in os.environ.items() if re.search(PATTERN, value.encode())},
    bool(re.search(PATTERN, os.getcwd().encode())), signal.getitimer(signal.ITIMER_REAL)[0] > 0,
    sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:4], os.getpid() == os.getsid(0),
    os.getpid() == os.getpgrp(), [os.isatty(fd) for fd in (0, 1, 2)],
)
"""

SYSTEM_V = r"""
key = 0x4D5347
text = ctypes.create_string_buffer(struct.pack("l", 1) + MESSAGE.encode(), 64)
shm = libc.shmget(key, 4096, 0o1666)
libc.shmat.restype = ctypes.c_void_p
where = libc.shmat(shm, None, 0)
if shm >= 0 and where not in (None, ctypes.c_void_p(-1).value):
    ctypes.memmove(where, text, 64)
libc.semget(key, 7, 0o1666)
queue = libc.msgget(key, 0o1666)
libc.msgsnd(queue, text, 40, 0)
"""

SYSTEM_V_LOOK = r"""
key = 0x4D5347
show([getattr(libc, name)(key, *words, 0) >= 0 for name, words in
      (("shmget", [0]), ("semget", [0]), ("msgget", []))])
"""

CHANNELS: dict[str, Channel] = {
    "files": Channel(
        r"""
for folder in folders():
    path = f"{folder}/{MESSAGE}"
    def write(path=path):
        with open(path, "w") as file:
            file.write(MESSAGE)
        os.chmod(path, 0)
    attempt(write)
    attempt(os.mkdir, path + "-folder")
    attempt(os.mkfifo, path + "-fifo")
    attempt(os.symlink, MESSAGE, folder + "/link")
    attempt(os.makedirs, folder + "/a" * 100 + "/" + MESSAGE)
    attempt(os.chmod, folder + "/a", 0)
for path in ("/proc/sys/kernel/domainname", "/proc/sys/kernel/hostname", "/proc/sys/kernel/shmmax"):
    attempt(lambda: open(path, "w").write(MESSAGE))
""",
        FILES_LOOK
        + "\nshow(os.uname().nodename, {'a', 'link'} & set(attempt(os.listdir, '/tmp') or []))\n",
    ),
    **{
        name: Channel(f"for path in [*ours(), EXTRA + '/file']:\n    {leave}\n", MODES_LOOK)
        for name, leave in MODES.items()
    },
    "System V IPC": Channel(SYSTEM_V, SYSTEM_V_LOOK),
    "POSIX semaphores and queues": Channel(
        r"""
libc.sem_open.restype = ctypes.c_void_p
libc.sem_open(b"/" + MESSAGE.encode(), os.O_CREAT, 0o666, 3)
attempt(lambda: ctypes.CDLL("librt.so.1").mq_open(b"/msg", os.O_CREAT | os.O_RDWR, 0o666, None))
""",
        r"""
queue = attempt(lambda: ctypes.CDLL("librt.so.1").mq_open(b"/msg", os.O_RDWR))
show(queue, [name for name in attempt(os.listdir, "/dev/shm") or [] if "sem" in name])
""",
    ),
    "daemons": Channel(
        r"""
path = os.environ["HOME"] if os.access(os.environ["HOME"], os.W_OK) else os.getcwd()
def become(setup=lambda: None):
    setup()
    out, told = os.pipe()
    if os.fork() == 0:
        os.set_inheritable(told, True)
        os.execv(sys.executable, [sys.executable, "-c",
            f"import os, signal; os.write({told}, b'x'); signal.pause()", MESSAGE])
    os.close(told)
    os.read(out, 1)
daemon(become)
daemon(lambda: become(lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)))
daemon(lambda: become(lambda: [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]))
""",
        PROCESSES_LOOK,
    ),
    "stopped processes": Channel(
        r"""
def stopped(work):
    out, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        libc.prctl(15, MESSAGE[4:18].encode(), 0, 0, 0)
        os.write(told, b"x")
        work()
        signal.pause()
    os.read(out, 1)
    os.waitpid(pid, os.WUNTRACED)
daemon(lambda: stopped(lambda: os.kill(os.getpid(), signal.SIGSTOP)))
daemon(lambda: stopped(lambda: (libc.ptrace(0, 0, 0, 0), os.kill(os.getpid(), signal.SIGSTOP))))
""",
        "show(len([pid for pid in pids() if re.fullmatch(b'[0-9a-f]{14}\\n',"
        " read(f'/proc/{pid}/comm'))]))",
    ),
    "memfd and shared mappings of a daemon": Channel(
        r"""
import mmap
def work():
    fd = os.memfd_create(MESSAGE)
    os.write(fd, MESSAGE.encode())
    shared = mmap.mmap(-1, 4096)
    shared.write(MESSAGE.encode())
    return fd, shared
daemon(work)
""",
        PROCESSES_LOOK,
    ),
    "sockets": Channel(
        r"""
def work():
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0message")
    abstract.listen()
    named = socket.socket(socket.AF_UNIX)
    attempt(named.bind, "/tmp/" + MESSAGE[:20])
    tcp = attempt(socket.create_server, ("127.0.0.1", 45678))
    return abstract, named, tcp
daemon(work)
""",
        r"""
def connected(family, name):
    with contextlib.closing(socket.socket(family)) as one:
        one.connect(name)
        return "connected"
show(attempt(connected, socket.AF_UNIX, "\0message"),
     attempt(connected, socket.AF_INET, ("127.0.0.1", 45678)),
     "@message" in read("/proc/net/unix").decode())
""",
    ),
    "keyrings": Channel(
        r"""
for ring in (-1, -2, -3, -4, -5):
    libc.syscall(ctypes.c_long(248), b"user", b"message", MESSAGE.encode(), 36, ring)
""",
        r"""
found = [libc.syscall(ctypes.c_long(250), 10, ring, b"user", b"message", 0) > 0
         for ring in (-1, -2, -3, -4, -5)]
show(found, b"message" in read("/proc/keys"))
""",
    ),
    "attributes of other processes": Channel(
        r"""
# Process 1 only if it is the slot's own.
for pid in {os.getppid(), 1 if b"python" in read("/proc/1/comm") else os.getppid()}:
    attempt(os.setpriority, os.PRIO_PROCESS, pid, 7)
    attempt(os.sched_setaffinity, pid, {0})
    attempt(os.sched_setscheduler, pid, os.SCHED_BATCH, os.sched_param(0))
    attempt(resource.prlimit, pid, resource.RLIMIT_NOFILE, (77, 777))
    libc.syscall(ctypes.c_long(251), 1, pid, (3 << 13) | 1)  # ioprio_set
    for name, text in (("oom_score_adj", "77"), ("timerslack_ns", "77777"), ("autogroup", "5"),
                       ("comm", MESSAGE[:12]), ("coredump_filter", "7")):
        attempt(lambda: open(f"/proc/{pid}/{name}", "w").write(text))
attempt(os.setpriority, os.PRIO_USER, os.getuid(), 7)
attempt(os.setpriority, os.PRIO_PGRP, os.getpgid(0), 7)
""",
        OWN_STATE_LOOK,
    ),
    "own process": Channel(
        r"""
os.environ["MESSAGE"] = MESSAGE
attempt(os.mkdir, MESSAGE); attempt(os.chdir, MESSAGE)
os.umask(0o77)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
signal.setitimer(signal.ITIMER_REAL, 1000)
os.nice(3)
resource.setrlimit(resource.RLIMIT_NOFILE, (55, 55))
os.dup2(0, 3)
attempt(lambda: open("/proc/self/oom_score_adj", "w").write("500"))
""",
        OWN_STATE_LOOK,
        local=True,
    ),
    "interpreter": Channel(
        r"""
import builtins, types
builtins.message = MESSAGE
sys.modules["message"] = types.ModuleType(MESSAGE)
sys.path.append(MESSAGE)
sys.setswitchinterval(1.0)
json.message = MESSAGE
""",
        r"""
import builtins
show(sorted(dir(builtins)), "message" in sys.modules, sys.path[1:], sys.getswitchinterval(),
     hasattr(json, "message"), hash("message"), sys.flags, sys.getrecursionlimit())
""",
        local=True,
    ),
    "memory": Channel(
        "print(MESSAGE); print(sys.stdin.read()); os.environ['X'] = MESSAGE; kept = MESSAGE * 100",
        r"""
found = set()
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        start, end = (int(word, 16) for word in line.split()[0].split("-"))
        if "r" in line.split()[1] and "[v" not in line:
            with contextlib.suppress(OSError, ValueError, OverflowError):
                memory.seek(start)
                found |= set(re.findall(PATTERN, memory.read(end - start)))
show(len(found))
""",
    ),
    "memory of the init": Channel(
        r"""
for pid in (1, os.getppid()):
    def write():
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb+", 0) as memory:
            for line in maps:
                if "[heap]" in line:
                    memory.seek(int(line.split("-")[1].split()[0], 16) - 64)
                    memory.write(MESSAGE.encode())
    attempt(write)
""",
        r"""
found = 0
for pid in ("self", 1, os.getppid()):
    def look():
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                if "[heap]" in line:
                    start, end = (int(word, 16) for word in line.split()[0].split("-"))
                    memory.seek(start)
                    return len(re.findall(PATTERN, memory.read(end - start)))
    found += attempt(look) or 0
show(found, attempt(lambda: open("/proc/1/environ").read()))
""",
    ),
}
