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
    """One way to leave a message."""

    leave: str
    look: str


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
    "modes of folders": Channel(
        "for path in [*ours(), EXTRA + '/file']:\n    attempt(os.chmod, path, 0o3777)\n", MODES_LOOK
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
