"""Confinement on the real kernel: programs under it try what they must not and what they may do."""

import errno
import json
import os
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.harness import confinement
from shared.harness.confinement import (
    COMMON,
    FIXED_ATTRIBUTES,
    LOCAL_SOCKETS,
    NO_NETWORK,
    Check,
    Rule,
)

ABI = confinement.landlock_abi()
NOBODY = 65534
SYSTEM = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", sys.prefix, sys.base_prefix]
FILTERED = ("COMMON",)

needs_landlock = pytest.mark.skipif(ABI == 0, reason="this kernel or container has no Landlock")
needs_scopes = pytest.mark.skipif(ABI < 6, reason="this kernel's Landlock knows no scopes")

CONFINE = """
import json, os, signal, sys
import confinement
options, *command = sys.argv[1:]
options = json.loads(options)
child = os.fork()
if child:  # the program has a parent of the same user
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))
if "files" in options["layers"]:
    confinement.restrict_files(options["readonly"], options["writable"])
profiles = [getattr(confinement, name) for name in options["layers"] if name != "files"]
if profiles:
    confinement.install_seccomp(*profiles)
os.execvp(command[0], command)
"""


class Confined:
    """Runs programs under layers of confinement, as root or as a plain user.

    Each has ``folder``, which it may write, with the module ``confinement`` in it.
    """

    def __init__(self, folder: Path, user: str) -> None:
        self.folder = folder
        self.ids: dict[str, Any] = {}
        if user == "plain" and os.geteuid() == 0:
            self.ids = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            for path in (folder, *folder.iterdir()):
                os.chown(path, NOBODY, NOBODY)
        self.python = self._interpreter()

    def _interpreter(self) -> str:
        for candidate in (sys.executable, "/usr/bin/python3"):
            try:
                subprocess.run([candidate, "-c", ""], check=True, cwd="/", **self.ids)
            except (OSError, subprocess.CalledProcessError):
                continue
            return candidate
        return pytest.skip("the user can run no interpreter")

    def command(
        self, layers: tuple[str, ...], argv: list[str], **options: Any
    ) -> subprocess.CompletedProcess[str]:
        words = {
            "layers": layers,
            "readonly": SYSTEM,
            "writable": [str(self.folder), "/dev/shm"],
        }
        return subprocess.run(
            [self.python, str(self.folder / "confine.py"), json.dumps(words), *argv],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], "TMPDIR": str(self.folder)},
            **self.ids,
            **options,
        )

    def python_program(
        self, layers: tuple[str, ...], code: str, *argv: str, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        program = self.folder / "program.py"
        program.write_text(dedent(code))
        return self.command(layers, [self.python, str(program), *argv], **options)

    def answer(self, layers: tuple[str, ...], code: str, *argv: str, **options: Any) -> Any:
        """Return what the program prints, read as JSON."""
        ended = self.python_program(layers, code, *argv, **options)
        assert ended.returncode == 0, ended
        return json.loads(ended.stdout)


@pytest.fixture
def folder(open_folder: Path) -> Path:
    folder = open_folder / "program"
    folder.mkdir()
    shutil.copy(confinement.__file__, folder / "confinement.py")
    (folder / "confine.py").write_text(CONFINE)
    return folder


@pytest.fixture(params=["root", "plain"])
def confined(request: pytest.FixtureRequest, folder: Path) -> Confined:
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("only root can test what root may do")
    return Confined(folder, request.param)


@pytest.fixture
def secret(folder: Path) -> Path:
    """A file outside the folder that every user may read and write."""
    path = folder.parent / "secret"
    path.write_text("secret")
    path.chmod(0o666)
    return path


# System calls that are refused.

CALL_EACH = """
import ctypes, json, os, sys
import confinement
column = ("x86_64", "aarch64").index(os.uname().machine)
answers = {}
for name in json.loads(sys.argv[1]):
    number = confinement.NUMBERS[name][column]
    if number is None:
        continue
    ctypes.set_errno(0)
    result = confinement.libc.syscall(*map(ctypes.c_long, (number, -1, -1, -1, -1, -1, -1)))
    answers[name] = ctypes.get_errno() if result == -1 else 0
print(json.dumps(answers))
"""


@pytest.mark.parametrize("profile", ["COMMON", "NO_NETWORK", "FIXED_ATTRIBUTES"])
def test_calls_refused_whatever_their_arguments(confined: Confined, profile: str):
    rules = {name: rule for name, rule in getattr(confinement, profile).items() if not rule.checks}
    answers = confined.answer((profile,), CALL_EACH, json.dumps(list(rules)))
    assert answers == {name: rules[name].errno for name in answers}
    assert len(answers) > 0.8 * len(rules)


REFUSED_ARGUMENTS = """
import ctypes, errno, json, os, struct
import confinement
libc = confinement.libc
parent = os.setsid() or os.getpid()
own, null = os.open("own", os.O_CREAT | os.O_RDWR), os.open("/dev/null", os.O_RDWR)
new_attributes = struct.pack("<IIQiIQQQ", 48, 0, 0, 9, *[0] * 4)
attempts = {
    "a new namespace": ("clone", 0x10000011, 0, 0, 0, 0),
    "a sibling": ("clone", 0x8011, 0, 0, 0, 0),
    "priority of the parent": ("setpriority", 0, parent, 1),
    "priority of the group": ("setpriority", 1, 0, 1),
    "priority of the user": ("setpriority", 2, 0, 1),
    "processors of the parent": ("sched_setaffinity", parent, 128, b"\\xff" * 128),
    "policy of the parent": ("sched_setscheduler", parent, 3, bytes(4)),
    "parameters of the parent": ("sched_setparam", parent, bytes(4)),
    "attributes of the parent": ("sched_setattr", parent, new_attributes, 0),
    "input priority of the parent": ("ioprio_set", 1, parent, 3 << 13),
    "input priority of the group": ("ioprio_set", 2, 0, 3 << 13),
    "limit of the parent": ("prlimit64", parent, 4, b"\\xff" * 16, 0),
    "memory of the parent": ("migrate_pages", parent, 1, bytes(8), bytes(8)),
    "pages of the parent": ("move_pages", parent, 0, 0, 0, 0, 0),
    "a personality": ("personality", 0x40000),
    "scheduling cookies": ("prctl", 62, 1, parent, 0, 0),
    "a write hint": ("fcntl", own, 1036, struct.pack("<Q", 2)),
    "typing into a terminal": ("ioctl", null, 0x5412, b"x"),
    "the same with high bits": ("ioctl", null, 0x700005412, b"x"),
}
column = ("x86_64", "aarch64").index(os.uname().machine)
answers = {}
def attempt():
    for name, (call, *words) in attempts.items():
        words = [word if isinstance(word, bytes) else ctypes.c_long(word) for word in words]
        number = ctypes.c_long(confinement.NUMBERS[call][column])
        ctypes.set_errno(0)
        result = libc.syscall(number, *words)
        if call == "clone" and result == 0:
            os._exit(0)
        answers[name] = errno.errorcode[ctypes.get_errno()] if result == -1 else "worked"
    print(json.dumps(answers), flush=True)
# In a child: its parent is a process of ours.
pid = os.fork()
if pid == 0:
    attempt()
    os._exit(0)
os.waitpid(pid, 0)
"""


def test_calls_refused_for_their_arguments(confined: Confined):
    allowed = confined.answer((), REFUSED_ARGUMENTS)
    refused = confined.answer(FILTERED, REFUSED_ARGUMENTS)
    assert set(refused.values()) == {"EPERM", "EINVAL"}
    assert [name for name, answer in refused.items() if answer == "EINVAL"] == ["a write hint"]
    # In many containers plain users get no namespace, and their parent is another user's.
    same = {name for name in refused if refused[name] == allowed[name]}
    assert same <= {"a new namespace", "attributes of the parent"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86")
def test_calls_of_another_architecture_kill(confined: Confined):
    code = """
        import ctypes, mmap
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # getpid through int 0x80
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    """
    if confined.python_program((), code).returncode == -signal.SIGSEGV:
        pytest.skip("this kernel runs no 32-bit code")
    assert confined.python_program(FILTERED, code).returncode == -signal.SIGSYS


# Files, and what else Landlock covers.

FILES = """
import errno, json, os, socket, sys
outside, port = sys.argv[1], int(sys.argv[2])
folder = os.path.dirname(outside)
parent = os.getppid()
os.symlink(outside, "link")
open("mine", "w").close()
attempts = {
    "read": lambda: open(outside).close(),
    "read through a link": lambda: open("link").close(),
    "write": lambda: open(outside, "a").close(),
    "truncate": lambda: os.truncate(outside, 0),
    "create": lambda: open(folder + "/new", "w").close(),
    "list": lambda: os.listdir(folder),
    "make a folder": lambda: os.mkdir(folder + "/new"),
    "make a fifo": lambda: os.mkfifo(folder + "/new"),
    "remove": lambda: os.unlink(outside),
    "move out": lambda: os.rename("mine", folder + "/new"),
    "link out": lambda: os.link("mine", folder + "/new"),
    "link in": lambda: os.link(outside, "inside"),
    "move in": lambda: os.rename(outside, "inside"),
    "change the system": lambda: open("/usr/new", "w").close(),
    "write to /proc": lambda: open("/proc/self/oom_score_adj", "w").close(),
    "a device": lambda: open("/dev/tty").close(),
    "write to a source of zeros": lambda: open("/dev/zero", "w").close(),
    "environment of the parent": lambda: open(f"/proc/{parent}/environ").close(),
    "memory of the parent": lambda: open(f"/proc/{parent}/mem", "rb+").close(),
    "a file of the parent": lambda: open(f"/proc/{parent}/fd/0").close(),
    "folder of the parent": lambda: os.readlink(f"/proc/{parent}/cwd"),
    "connect": lambda: socket.create_connection(("127.0.0.1", port), 5).close(),
    "listen": lambda: socket.create_server(("127.0.0.1", 0)).close(),
    "signal to the parent": lambda: os.kill(parent, 0),
    "an abstract socket": lambda: socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[3]),
}
answers = {}
for name, attempt in attempts.items():
    try: attempt()
    except OSError as error: answers[name] = errno.errorcode[error.errno]
    else: answers[name] = "worked"
print(json.dumps(answers))
"""


@pytest.fixture
def listening() -> Iterator[tuple[str, str]]:
    """The port of a listening TCP socket and the name of an abstract one."""
    name = f"plumbline-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        abstract.bind(f"\0{name}")
        abstract.listen()
        yield str(tcp.getsockname()[1]), name


@needs_scopes
def test_landlock_refuses(confined: Confined, secret: Path, listening: tuple[str, str]):
    answers = confined.answer(("files",), FILES, str(secret), *listening)
    signals = {answers.pop("signal to the parent"), answers.pop("an abstract socket")}
    assert signals == {"EPERM"}
    # Since Linux 6.11 CAP_PERFMON, which root has, is enough for this one.
    environment = answers.pop("environment of the parent")
    assert environment == "EACCES" or (os.geteuid() == 0 and not confined.ids)
    assert {name for name, answer in answers.items() if answer == "worked"} == set()
    assert set(answers.values()) <= {"EACCES", "EPERM", "EXDEV"}
    assert secret.read_text() == "secret"
    assert sorted(path.name for path in secret.parent.iterdir()) == ["program", "secret"]


def test_without_landlock_the_same_works(folder: Path, listening: tuple[str, str]):
    """The attempts mean something: nothing else on this machine refuses them."""
    outside = folder / "nested" / "secret"
    outside.parent.mkdir()
    outside.write_text("secret")
    answers = Confined(folder, "own").answer((), FILES, str(outside), *listening)
    for name in ("read", "write", "truncate", "create", "list", "remove", "move out", "connect",
                 "listen", "signal to the parent", "a file of the parent",
                 "environment of the parent", "an abstract socket", "write to /proc"):  # fmt: skip
        assert answers[name] == "worked", name


# Kernels without Landlock, or with less of it.


@pytest.mark.parametrize("code", ["ENOSYS", "EPERM", "EOPNOTSUPP"])
def test_engine_that_refuses_landlock(confined: Confined, code: str):
    program = f"""
        import confinement, errno, json
        confinement.NUMBERS["landlock_create_ruleset"] = (444, 444)
        confinement.install_seccomp(
            {{"landlock_create_ruleset": confinement.Rule(errno.{code})}})
        try:
            confinement.restrict_files(["/"], [])
        except confinement.ConfinementError as error:
            print(json.dumps([confinement.landlock_abi(), str(error)]))
    """
    abi, message = confined.answer((), program)
    assert abi == 0
    assert "offers no Landlock" in message


@needs_landlock
def test_older_interfaces(folder: Path, secret: Path):
    code = f"""
        import confinement, json, os, sys
        def works(attempt):
            try: attempt()
            except OSError: return False
            return True
        def answers(abi):
            confinement.landlock_abi = lambda: abi
            covered = confinement.restrict_files(["/usr"], [])
            return ["truncation" in covered, works(lambda: os.truncate(sys.argv[1], 0)),
                    "signals" in covered, works(lambda: os.kill(os.getppid(), 0)),
                    "files" in covered, works(lambda: open(sys.argv[1]))]
        print("[", flush=True)
        for abi in range(1, {ABI} + 1):
            if os.fork() == 0:
                print("," * (abi > 1) + json.dumps(answers(abi)), flush=True)
                os._exit(0)
            os.wait()
        print("]")
    """
    answers = Confined(folder, "own").answer((), code, str(secret))
    assert answers == [
        [abi >= 3, abi < 3, abi >= 6, abi < 6, True, False] for abi in range(1, ABI + 1)
    ]


def test_missing_paths(tmp_path: Path):
    if ABI == 0:
        pytest.skip("this kernel has no Landlock")
    with pytest.raises(FileNotFoundError):
        confinement.restrict_files(
            [str(tmp_path / "missing")], [str(tmp_path / "gone")], {"/dev/missing": 4}
        )


# The filter as a program, for both machines.


def expected(rules: list[Mapping[str, Rule]], machine: str, number: int, words: list[int]) -> int:
    """Return the action of a filter by its rules alone."""
    column = list(confinement.AUDIT_ARCHITECTURES).index(machine)
    if number > confinement.LAST_KNOWN:
        return confinement.ERRNO | errno.ENOSYS
    for profile in rules:
        for name, rule in profile.items():
            if confinement.NUMBERS[name][column] == number and not all(
                holds(check, words) for check in rule.checks or [Check(0, ())]
            ):
                return confinement.ERRNO | rule.errno
    return confinement.ALLOW


def holds(check: Check, words: list[int]) -> bool:
    return ((words[check.argument] & check.mask) in check.values) is check.one_of


def execute(program: bytes, data: bytes) -> int:
    """Run a program of classic BPF on a ``seccomp_data``; return its action."""
    code = list(struct.iter_unpack("=HBBI", program))
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, operand = code[at]
        at += 1
        match operation:
            case confinement.LOAD:
                (accumulator,) = struct.unpack_from("=I", data, operand)
            case confinement.AND:
                accumulator &= operand
            case confinement.JUMP:
                at += operand
            case confinement.JUMP_EQUAL:
                at += if_true if accumulator == operand else if_false
            case confinement.JUMP_NOT_LESS:
                at += if_true if accumulator >= operand else if_false
            case confinement.RETURN:
                return int(operand)
            case _:
                raise AssertionError(operation)


COMBINATIONS = [(COMMON,), (COMMON, LOCAL_SOCKETS), (COMMON, NO_NETWORK, FIXED_ATTRIBUTES)]
NUMBERS = [number for pair in confinement.NUMBERS.values() for number in pair if number is not None]
INTERESTING = [0, 1, 2, 5, 62, 0x5401, 0x5412, 0x541C, 0x80005, 1036, 0x10000011, 0xFFFFFFFF]


@cache
def compiled(machine: str, profiles: int) -> bytes:
    rules = next(rules for rules in COMBINATIONS if len(rules) == profiles)
    return confinement.compile_filter(*rules, machine=machine)


@pytest.mark.parametrize("machine", confinement.AUDIT_ARCHITECTURES)
@pytest.mark.parametrize("rules", COMBINATIONS, ids=len)
@given(
    number=st.sampled_from(NUMBERS) | st.integers(0, 500) | st.integers(0, 2**32 - 1),
    words=st.lists(
        st.sampled_from(INTERESTING) | st.integers(0, 2**32 - 1), min_size=6, max_size=6
    ),
    high=st.integers(0, 2**32 - 1),
)
@example(number=0x4000_0000 | 39, words=[0] * 6, high=0)
def test_filter_does_what_its_rules_say(
    machine: str, rules: list[Mapping[str, Rule]], number: int, words: list[int], high: int
):
    program = compiled(machine, len(rules))
    full = [word | high << 32 for word in words]
    architecture = confinement.AUDIT_ARCHITECTURES[machine]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *full)
    assert execute(program, data) == expected(rules, machine, number, words)
    foreign = struct.pack("=IIQ6Q", number, 0x40000003, 0, *full)
    assert execute(program, foreign) == confinement.KILL_PROCESS


def test_machine_of_another_type():
    with pytest.raises(confinement.ConfinementError, match="riscv64"):
        confinement.compile_filter(COMMON, machine="riscv64")


@pytest.mark.parametrize(
    ("header", "column"),
    [("x86_64-linux-gnu/asm/unistd_64.h", 0), ("asm-generic/unistd.h", 1)],
)
def test_numbers_are_the_kernels(header: str, column: int):
    path = Path("/usr/include", header)
    if not path.exists():
        pytest.skip(f"{path} is not installed")
    defined = re.findall(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)$", path.read_text(), re.MULTILINE)
    kernels = {name: int(number) for name, number in defined}
    ours = {name: pair[column] for name, pair in confinement.NUMBERS.items()}
    newer = {"fchmodat2", "file_setattr", "open_tree_attr", "removexattrat", "setxattrat"}
    for name in ours.keys() & kernels.keys() | ours.keys() - newer:
        assert kernels.get(name) == ours[name], name
