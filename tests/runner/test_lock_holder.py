"""Holders of a run's lock that are known to have died."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from services.runner.lock_holder import has_died, new_holder

_PROGRAM = "from services.runner.lock_holder import *; print(new_holder(), flush=True); input()"


@pytest.fixture
def process() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        yield child
        child.kill()


def test_a_process_that_is_there_has_not_died(process: "subprocess.Popen[str]") -> None:
    holder = process.stdout.readline().strip()
    assert not has_died(holder)
    assert not has_died(new_holder())
    assert new_holder() != new_holder()


def test_a_killed_process_has_died_before_and_after_its_parent_notices(
    process: "subprocess.Popen[str]",
) -> None:
    holder = process.stdout.readline().strip()
    process.kill()
    assert process.stdout.read() == ""  # it is a zombie from now on
    assert has_died(holder)
    process.wait()
    assert has_died(holder)


def test_another_process_of_the_same_number_is_not_the_holder() -> None:
    place, pid, began, nonce = new_holder().split()
    assert has_died(f"{place} {pid} {int(began) - 1} {nonce}")


@pytest.mark.parametrize("part", range(3), ids=["host", "boot", "namespace"])
def test_of_a_process_elsewhere_nothing_is_known(part: int) -> None:
    place, _, began, nonce = new_holder().split()
    parts = place.split("/")
    parts[part] += "1"
    assert not has_died(f"{'/'.join(parts)} 4194305 {began} {nonce}")


@pytest.mark.parametrize(
    "holder", ["", "killed", "host:12:0123456789abcdef", "h/unknown 1 0 " + "0" * 32]
)
def test_another_name_tells_nothing(holder: str) -> None:
    assert not has_died(holder)


def test_a_process_that_cannot_be_looked_at_has_not_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user's where /proc is mounted with ``hidepid``, or without free descriptors."""
    holder = new_holder()
    monkeypatch.setattr("services.runner.lock_holder._stat", lambda _pid: [])
    assert not has_died(holder)
