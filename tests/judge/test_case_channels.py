"""Nothing passes from case to case where the harness arrives as files."""

import os
import re
import secrets
import sys
from pathlib import Path

import pytest

from tests.judge.test_harness_fidelity import ENVIRONMENT, USERS, folder, harness, python
from tests.sandbox.channels import CHANNELS, PATTERN, PRELUDE, Channel
from tests.sandbox.test_cases_apart import MORE, program

__all__ = ["folder", "python"]

# What is closed without a user of its own, too.
EVERYWHERE = {
    "daemons", "sockets", "memory", "folder above", "own folder", "results", "streams",
    "descriptors",
}  # fmt: skip


def leak(folder: Path, python: str, channel: Channel) -> list[str]:
    """Return what cases see before and after another one, if that differs."""
    message = f"MSG-{secrets.token_hex(16)}"
    code = program(f"{PRELUDE}\nEXTRA = os.getcwd()\n", channel)
    environment = {**ENVIRONMENT, "HOME": "/nonexistent"}
    inputs = [b"look", f"leave {message}".encode(), b"look", f"leave {message}".encode(), b"look"]
    result, _ = harness(folder, python, code.encode(), inputs, environment)
    Path("/tmp", message[:20]).unlink(missing_ok=True)  # the socket of a program without a sandbox
    assert 0 in result.cases, result
    assert result.cases[0].exit_code == 0, result.cases[0]
    seen = [result.cases[place].stdout.decode() for place in (0, 2, 4) if place in result.cases]
    assert len(seen) == 3 or result.end in ("full", "lost", None)
    return seen if len(set(seen)) > 1 or any(re.search(PATTERN, look) for look in seen) else []


@pytest.fixture
def public_python(folder: Path) -> str:
    """An interpreter that all users can run, so that answers get a user of their own."""
    for name in (str(Path(sys.executable).resolve()), "/usr/bin/python3"):
        if Path(name).exists():
            result, _ = harness(folder, name, b"import os; print(os.getuid())", [b""])
            if result.cases[0].stdout not in (b"", b"%d\n" % os.getuid()):
                return name
    pytest.skip("no user of its own here")


@pytest.mark.parametrize("folder", USERS[1:], indirect=True)
def test_no_channel_with_a_user_of_its_own(folder: Path, public_python: str):
    every = {**CHANNELS, **MORE}
    found = {name: leak(folder, public_python, channel) for name, channel in every.items()}
    assert {name: seen for name, seen in found.items() if seen} == {}


@pytest.mark.parametrize("folder", ["same user"], indirect=True)
def test_no_channel_but_files_with_the_same_user(folder: Path, python: str):
    every = {name: one for name, one in {**CHANNELS, **MORE}.items() if name in EVERYWHERE}
    found = {name: leak(folder, python, channel) for name, channel in every.items()}
    assert {name: seen for name, seen in found.items() if seen} == {}


@pytest.mark.parametrize("folder", USERS[1:], indirect=True)
def test_the_last_case_leaves_nothing_either(folder: Path, public_python: str):
    message = f"MSG-{secrets.token_hex(16)}"
    code = (
        "for folder in ('/tmp', '/var/tmp', '/dev/shm'):\n"
        f"    try: open(f'{{folder}}/{message}', 'w').close()\n    except OSError: pass\n"
    )
    harness(folder, public_python, code.encode(), [b"", b""])
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        assert not Path(place, message).exists()
