"""Nothing passes from one program to the next one in the same slot, nor to one beside it."""

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

WAYS = ("run_code", "run_cases")


@dataclass(frozen=True)
class Rung:
    """An isolation, and which of its guards are there."""

    kind: IsolationChoice
    identity: Identity | None = None
    landlock: bool = True

    def __str__(self) -> str:
        words = [self.kind.value, self.identity and self.identity.value.replace(" ", "-")]
        return "-".join([word for word in words if word] + ["no-landlock"] * (not self.landlock))


RUNGS = [
    Rung(IsolationChoice.BWRAP),
    Rung(IsolationChoice.UNSHARE),
    Rung(IsolationChoice.LANDLOCK),
]
# The same by another user, and as on a kernel without Landlock.
OTHER_RUNGS = [
    Rung(IsolationChoice.BWRAP, Identity.NAMESPACE),
    Rung(IsolationChoice.UNSHARE, Identity.NAMESPACE),
    Rung(IsolationChoice.LANDLOCK, Identity.SLOT),
    Rung(IsolationChoice.BWRAP, Identity.NAMESPACE, landlock=False),
    Rung(IsolationChoice.UNSHARE, Identity.NAMESPACE, landlock=False),
]


class Programs:
    """Runs Python programs one after another in one slot."""

    def __init__(self, sandbox: Sandbox, extra: Path) -> None:
        self.sandbox = sandbox
        self.prelude = f"{PRELUDE}\nEXTRA = {str(extra)!r}\n"

    async def run(self, way: str, code: str, stdin: str = "", language: str = "python") -> str:
        if way == "run_cases":
            return await self._case(code, stdin, language)
        answer = await self.sandbox.run(code, language, stdin=stdin)
        assert answer["run_result"]["return_code"] == 0, answer
        return str(answer["run_result"]["stdout"])

    async def look(self, way: str, channel: Channel) -> str:
        return await self.run(way, self.prelude + channel.look)

    async def leave(self, way: str, channel: Channel, then: str = "") -> tuple[str, str]:
        message = f"MSG-{secrets.token_hex(16)}"
        code = f"{self.prelude}MESSAGE = {message!r}\n{channel.leave}\n{then}"
        return message, await self.run(way, code, stdin=message)

    async def _case(self, code: str, stdin: str, language: str) -> str:
        status, result = await run_cases(self.sandbox, code, [stdin], language)
        assert (status, result["end"]) == (200, "done"), result
        case = result["cases"]["0"]
        assert case["exit_code"] == 0, case
        return base64.b64decode(case["stdout"]).decode()


async def run_cases(
    sandbox: Sandbox, code: str, inputs: list[str], language: str = "python", **limits: Any
) -> tuple[int, Any]:
    limits = {"cpu": 10, "wall": 20, "compile": 30, "budget": 60, "memory": 1 << 30,
              "output": 1 << 20} | limits  # fmt: skip
    body = {"code": code, "language": language, "inputs": inputs, "limits": limits}
    return await sandbox.send("POST", "/run_cases", json.dumps(body).encode())


@pytest.fixture
def extra(tmp_path: Path) -> Path:
    """A folder that programs may read, with a file of the server's user."""
    tmp_path.chmod(0o755)
    folder = tmp_path / "extra"
    folder.mkdir()
    (folder / "file").write_text("text")
    return folder


Start = Callable[[Rung], Awaitable[Programs]]


@pytest.fixture
def start(
    start_sandbox: StartSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, extra: Path
) -> Start:
    async def start(rung: Rung) -> Programs:
        if rung.identity is not None:
            monkeypatch.setattr(probe, "_identities", lambda _kind: [rung.identity])
        if not rung.landlock:
            change_source(monkeypatch, "confinement", "\ndef landlock_abi(): return 0\n")
        root = tmp_path / "below" / "each other"  # folders that the slot makes in its own /tmp
        root.mkdir(parents=True)
        settings: dict[str, Any] = {"temp_root": root, "readonly_paths": str(extra)}
        if rung.identity is Identity.SLOT:
            settings["python"] = "/usr/bin/python3"  # which every user may read
        for folder in (tmp_path, *tmp_path.parents, root.parent, root):
            if not folder.stat().st_mode & 0o005 and folder.owner() != "root":
                pytest.skip(f"{folder} is closed")
            if folder.is_relative_to(tmp_path.parents[1]):
                folder.chmod(0o755)
        try:
            sandbox = await start_sandbox(isolation=rung.kind, concurrency=1, **settings)
        except IsolationError as error:
            pytest.skip(str(error))
        return Programs(sandbox, extra)

    return start


def change_source(monkeypatch: pytest.MonkeyPatch, name: str, addition: str) -> None:
    source = slots._source
    monkeypatch.setattr(
        slots, "_source", lambda wanted: source(wanted) + addition * (wanted == name)
    )


async def leaks(programs: Programs, way: str) -> dict[str, tuple[str, str]]:
    """Channels through which a program learns something of the one before it."""
    found = {}
    for name, channel in CHANNELS.items():
        before = await programs.look(way, channel)
        message, _ = await programs.leave(way, channel)
        after = await programs.look(way, channel)
        if after != before or message in after:
            found[name] = (before, after)
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rung", RUNGS, ids=str)
async def test_no_channel_to_the_next_program(start: Start, rung: Rung, way: str):
    programs = await start(rung)
    assert await leaks(programs, way) == {}


@pytest.mark.parametrize("rung", OTHER_RUNGS, ids=str)
async def test_no_channel_in_other_rungs(start: Start, rung: Rung):
    programs = await start(rung)
    assert await leaks(programs, "run_code") == {}


# The init as it would be without its duties: it keeps what it has read, and cleans up nothing.
UNGUARDED = """
cases.prctl = lambda *_: None
Init.sweep = Init.tidy = lambda *_: True
attributes = lambda: 0
kept = []
def keep(self, receive=Init.receive):
    order, fds = receive(self)
    kept.extend(open(word, "rb").read() for word in order["argv"] if word.endswith(".py"))
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


@pytest.mark.usefixtures("unguarded")
async def test_the_probes_find_what_nothing_guards(start: Start):
    """Otherwise the tests above would show nothing."""
    programs = await start(Rung(IsolationChoice.BWRAP, Identity.NAMESPACE))
    found = await leaks(programs, "run_code")
    assert set(found) == {name for name, channel in CHANNELS.items() if not channel.local}


@pytest.mark.parametrize("name", [name for name, channel in CHANNELS.items() if channel.local])
async def test_a_program_finds_its_own_message(start: Start, name: str):
    programs = await start(Rung(IsolationChoice.BWRAP))
    channel = CHANNELS[name]
    alone = await programs.look("run_code", channel)
    _, both = await programs.leave("run_code", channel, then=channel.look)
    assert both != alone
