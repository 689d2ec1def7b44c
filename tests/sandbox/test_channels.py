"""Nothing passes from one program to the next one in the same slot, nor to one beside it."""

import asyncio
import base64
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.sandbox import probe, slots
from services.sandbox.isolation import Identity, Isolation
from services.sandbox.probe import IsolationError
from services.sandbox.settings import IsolationChoice
from tests.sandbox.channels import CHANNELS, PRELUDE, Channel
from tests.sandbox.conftest import Sandbox, StartSandbox
from tests.sandboxes import rungs

WAYS = ("run_code", "run_cases")
FAILED = "FAILED: "


@dataclass(frozen=True)
class Rung:
    """An isolation, and which of its guards are there."""

    kind: IsolationChoice
    identity: Identity | None = None
    landlock: bool = True

    def __str__(self) -> str:
        words = [self.kind.value, self.identity and self.identity.value.replace(" ", "-")]
        return "-".join([word for word in words if word] + ["no-landlock"] * (not self.landlock))


NAMESPACES = Rung(IsolationChoice.BWRAP)
RUNGS = [
    pytest.param(Rung(IsolationChoice(kind.values[0])), id=kind.values[0], marks=kind.marks)
    for kind in rungs("bwrap", "landlock")
]
# The same by another user, and as on a kernel without Landlock.
OTHER_RUNGS = [
    pytest.param(rung, id=str(rung), marks=pytest.mark.nightly)
    for rung in (
        Rung(IsolationChoice.BWRAP, Identity.NAMESPACE),
        Rung(IsolationChoice.LANDLOCK, Identity.SLOT),
        Rung(IsolationChoice.BWRAP, Identity.NAMESPACE, landlock=False),
    )
]


class Programs:
    """Runs Python programs one after another in one slot."""

    def __init__(self, sandbox: Sandbox, extra: Path) -> None:
        self.sandbox = sandbox
        self.prelude = f"{PRELUDE}\nEXTRA = {str(extra)!r}\n"

    async def run(self, way: str, code: str, stdin: str = "", language: str = "python") -> str:
        """Return what a program prints; if it fails, its last words."""
        if way == "run_cases":
            return await self._case(code, stdin, language)
        result = (await self.sandbox.run(code, language, stdin=stdin))["run_result"]
        printed, words = result["stdout"], result["stderr"]
        return printed if result["return_code"] == 0 else f"{FAILED}{printed}{words}"

    async def look(self, way: str, channel: Channel) -> str:
        return await self.run(way, self.prelude + channel.look)

    async def leave(self, way: str, channel: Channel) -> tuple[str, str]:
        message = f"MSG-{secrets.token_hex(16)}"
        code = f"{self.prelude}MESSAGE = {message!r}\n{channel.leave}\n"
        return message, await self.run(way, code, stdin=message)

    async def _case(self, code: str, stdin: str, language: str) -> str:
        status, result = await run_cases(self.sandbox, code, [stdin], language)
        case = result["cases"].get("0") if status == 200 else None
        if case is None or case["exit_code"] != 0:
            return f"{FAILED}{result}"
        return base64.b64decode(case["stdout"]).decode()


async def run_cases(
    sandbox: Sandbox, code: str, inputs: list[str], language: str = "python", **limits: Any
) -> tuple[int, Any]:
    limits = {"cpu": 10, "wall": 20, "compile": 30, "budget": 60, "memory": 1 << 30,
              "output": 1 << 20} | limits  # fmt: skip
    body = {"code": code, "language": language, "inputs": inputs, "limits": limits}
    return await sandbox.send("POST", "/run_cases", json.dumps(body).encode())


@pytest.fixture
def extra(open_folder: Path) -> Path:
    """A folder that programs may read, with a file of the server's user."""
    extra = open_folder / "extra"
    extra.mkdir()
    (extra / "file").write_text("text")
    return extra


Start = Callable[..., Awaitable[Programs]]


@pytest.fixture
def start(
    start_sandbox: StartSandbox, monkeypatch: pytest.MonkeyPatch, open_folder: Path, extra: Path
) -> Start:
    async def start(rung: Rung, concurrency: int = 1) -> Programs:
        if rung.identity is not None:
            monkeypatch.setattr(probe, "_identities", lambda _kind: [rung.identity])
        if not rung.landlock:
            change_source(monkeypatch, "confinement", "\ndef landlock_abi(): return 0\n")
        root = open_folder / "below" / "each other"  # folders that the slot makes in its own /tmp
        root.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {"temp_root": root, "readonly_paths": str(extra)}
        if rung.identity is Identity.SLOT:
            settings["python"] = "/usr/bin/python3"  # which every user may read
        try:
            sandbox = await start_sandbox(isolation=rung.kind, concurrency=concurrency, **settings)
        except IsolationError as error:
            pytest.skip(str(error))
        return Programs(sandbox, extra)

    return start


def change_source(monkeypatch: pytest.MonkeyPatch, name: str, addition: str) -> None:
    source = slots._source
    monkeypatch.setattr(
        slots, "_source", lambda wanted: source(wanted) + addition * (wanted == name)
    )


async def leak(programs: Programs, way: str, channel: Channel) -> tuple[str, str] | None:
    """What a program sees before and after another one left a message, if that differs."""
    before = await programs.look(way, channel)
    message, left = await programs.leave(way, channel)
    after = await programs.look(way, channel)
    assert not before.startswith(FAILED), before
    assert not left.startswith(FAILED), left
    return (before, after) if after != before or message in after else None


async def leaks(start: Start, rung: Rung, way: str) -> dict[str, tuple[str, str]]:
    """What leaks in each of three new sandboxes: others on the machine change what is seen, too."""
    leaking: dict[str, tuple[str, str]] = dict.fromkeys(CHANNELS, ("", ""))
    for _ in range(3):
        if leaking:
            programs = await start(rung)
            found = {name: await leak(programs, way, CHANNELS[name]) for name in leaking}
            leaking = {name: seen for name, seen in found.items() if seen is not None}
    return leaking


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rung", RUNGS)
async def test_no_channel_to_the_next_program(start: Start, rung: Rung, way: str):
    assert await leaks(start, rung, way) == {}


@pytest.mark.parametrize("rung", OTHER_RUNGS)
async def test_no_channel_in_other_rungs(start: Start, rung: Rung):
    assert await leaks(start, rung, "run_code") == {}


# The init as it would be without its duties: it keeps what it has read, and cleans up nothing.
UNGUARDED = """
for module in list(sys.modules.values()):
    if module.__name__.startswith("shared.harness.cases") and hasattr(module, "prctl"):
        module.prctl = lambda *_: None
Init.sweep = lambda *_: True
def tidy(self, *_):  # else the slot had one answer alone
    from shared.harness.cases.files import remove
    remove(self.folder)
    return True
Init.tidy = tidy
attributes = lambda: 0
kept = []
def keep(self, receive=Init.receive):
    order, fds = receive(self)
    if order["kind"] == "cases":
        with open(fds[0], "rb") as file:
            kept.append(file.read())
        fds[0], feed = os.pipe()
        os.write(feed, kept[-1])
        os.close(feed)
    return order, fds
Init.receive = keep
"""


@pytest.fixture
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def clear(_slot: slots.Slot) -> None:
        return None

    monkeypatch.setattr(Isolation, "seccomp_profiles", lambda _self: [])
    monkeypatch.setattr(slots.Slot, "clear", clear)
    change_source(monkeypatch, "init", UNGUARDED)


@pytest.mark.nightly
@pytest.mark.usefixtures("unguarded")
async def test_the_probes_find_what_nothing_guards(start: Start):
    """Otherwise the tests above would show nothing."""
    places = asyncio.Semaphore(4)

    async def finds(name: str) -> bool:
        async with places:
            for way in WAYS:
                # In a new slot: this one keeps what was left in it.
                programs = await start(Rung(NAMESPACES.kind, Identity.NAMESPACE))
                if await leak(programs, way, CHANNELS[name]):
                    return True
            return False

    answers = await asyncio.gather(*map(finds, CHANNELS))
    found = {name for name, answer in zip(CHANNELS, answers, strict=True) if answer}
    assert found == set(CHANNELS)


BESIDE = """
import json, os, re, signal, socket, sys
message, pid_here = input(), os.getpid()
found = []
def attempt(name, function):
    try:
        if function():
            found.append(name)
    except OSError:
        pass
def connect():
    one = socket.socket(socket.AF_UNIX)
    one.connect("\\0beside")
    return True
for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
    if pid in (pid_here, os.getppid()):
        continue
    for name in ("environ", "maps", "mem"):
        attempt(name, lambda: b"MSG-" in open(f"/proc/{pid}/{name}", "rb").read(1 << 16))
    attempt("fd", lambda: any(["message" in os.readlink(f"/proc/{pid}/fd/{fd}")
                               for fd in os.listdir(f"/proc/{pid}/fd")]))
    # Signals to the machine's own processes would say nothing about the other program.
    try: name = open(f"/proc/{pid}/comm", "rb").read()
    except OSError: continue
    if b"beside" in name:
        attempt("signal", lambda: os.kill(pid, signal.SIGUSR1) is None)
        attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 5) is None)
attempt("abstract socket", connect)
for folder in ("/tmp", "/dev/shm", "/var/tmp", "..", "../..", message):
    attempt("files of " + folder, lambda: [n for n in os.listdir(folder) if "message" in n])
print(json.dumps(found))
"""
WAITING = """
import ctypes, os, signal, socket, sys, time
ctypes.CDLL(None).prctl(15, b"beside", 0, 0, 0)
os.environ["MESSAGE"] = "MSG-" * 8
kept = []
for folder in ("/tmp", "/dev/shm", "/var/tmp", "."):
    try: kept.append(open(folder + "/message", "w"))
    except OSError: pass
kept.append(os.memfd_create("message"))
try:
    one = socket.socket(socket.AF_UNIX); one.bind("\\0beside"); one.listen()
except OSError: pass
def handler(*_): print("a signal arrived", flush=True)
signal.signal(signal.SIGUSR1, handler)
print("waits", flush=True)
began, priority = time.monotonic(), os.getpriority(os.PRIO_PROCESS, 0)
while time.monotonic() - began < 3: time.sleep(0.05)
print(os.getpriority(os.PRIO_PROCESS, 0) - priority, "done", flush=True)
"""


@pytest.mark.parametrize("rung", [*RUNGS, *OTHER_RUNGS])
async def test_programs_at_the_same_time_do_not_see_each_other(start: Start, rung: Rung):
    programs = await start(rung, concurrency=2)
    ready = await programs.sandbox.ready()
    waiting = asyncio.create_task(programs.run("run_code", WAITING))
    await asyncio.sleep(1)
    found = await programs.run("run_code", BESIDE, stdin=".")
    if rung.kind is IsolationChoice.LANDLOCK and "signals between programs" not in ready["covered"]:
        pytest.skip("this kernel's Landlock does not cover signals")
    assert found == "[]\n"
    assert await waiting == "waits\n0 done\n"
