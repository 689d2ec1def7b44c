"""A round of faults, and an end of the harness from outside."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.e2e import plumb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

_CHAOS = [sys.executable, "-m", "tests.chaos", "--problems", "1", "--minutes", "0"]


def started(command: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=plumb.REPOSITORY,
        env=plumb.environment() | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=plumb.take_interrupts,
    )


@pytest.mark.nightly
def test_a_round_without_a_violation(tmp_path: Path) -> None:
    faults = ["--seed", "310", "--rounds", "1", "--faults", "kill,terminate"]
    process = started([*_CHAOS, *faults, "--keep", str(tmp_path / "kept")], tmp_path)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "1 rounds" in output
    assert output.endswith("0 lost, 0 doubled, 0 changed\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "sign", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGKILL]
)
def test_nothing_is_left_of_a_harness_that_is_stopped(sign: signal.Signals, tmp_path: Path) -> None:
    """SIGKILL is sent to its parent."""
    parent = sign == signal.SIGKILL
    command = ["sh", "-c", '"$@"; true', "sh", *_CHAOS] if parent else _CHAOS
    process = started(command, tmp_path)
    plumb.wait_for(lambda: any(map(_is_redis, plumb.children(process.pid))), "Redis")
    family = plumb.children(process.pid)
    process.send_signal(sign)
    process.wait(60)
    plumb.wait_until_gone(family)
    assert not list(tmp_path.iterdir())
    if not parent:
        assert process.returncode == 130


def _is_redis(process: psutil.Process) -> bool:
    try:
        return process.name() == "redis-server" and os.getpid() != process.pid
    except psutil.Error:
        return False
