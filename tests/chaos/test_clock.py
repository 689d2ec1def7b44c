"""Clocks that jump: what shifts in a process with one, and what does not."""

import subprocess
import sys
import time
from collections.abc import Sequence

import pytest

from tests.chaos.clock import Clocks

_PRINTED = (
    "import os, subprocess, sys, time\n"
    "time.sleep(0.01)\n"
    "print(time.time(), time.monotonic(), 'LD_PRELOAD' in os.environ, flush=True)\n"
    "sys.stdin.readline()\n"
    "print(time.time(), time.monotonic(), 'LD_PRELOAD' in os.environ, flush=True)\n"
)


def started(clocks: Clocks, name: str) -> subprocess.Popen[str]:
    """A Python process that tells its clocks, and tells them again after a line."""
    environment = clocks.environment(name) if name == "command" else {}
    site = {"PYTHONPATH": clocks.environment(name)["PYTHONPATH"]}
    return subprocess.Popen(
        [sys.executable, "-c", _PRINTED],
        env=environment | site,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def told(process: subprocess.Popen[str]) -> tuple[float, float, str]:
    """How far wall clock and monotonic clock are off, and whether children would get the clock."""
    assert process.stdout is not None
    wall, monotonic, passed_on = process.stdout.readline().split()
    return float(wall) - time.time(), float(monotonic) - time.monotonic(), passed_on


@pytest.mark.parametrize("name", ["command", "services"])
@pytest.mark.parametrize("jumps", [(3600.0,), (-7200.0, 300.0)])
def test_the_wall_clock_of_a_running_process_jumps_and_the_monotonic_one_does_not(
    name: str, jumps: Sequence[float], clocks: Clocks
) -> None:
    with started(clocks, name) as process:
        wall, monotonic, passed_on = told(process)
        assert (abs(wall) < 2, abs(monotonic) < 2, passed_on) == (True, True, "False")
        for seconds in jumps:
            clocks.jump(name, seconds)
        assert process.stdin is not None
        print(file=process.stdin, flush=True)
        wall, monotonic, _ = told(process)
        assert abs(wall - sum(jumps)) < 2
        assert abs(monotonic) < 2


def test_a_group_has_a_clock_of_its_own_until_all_jump(clocks: Clocks) -> None:
    assert clocks.jump("redis", 20) == "command +0 s, redis +20 s, services +0 s"
    assert clocks.jump("all", -3600) == "command -3600 s, redis -3580 s, services -3600 s"
    clocks.reset()
    assert clocks.jump("all", 0) == "command +0 s, redis +0 s, services +0 s"


def test_a_clock_is_wrong_by_a_day_at_most(clocks: Clocks) -> None:
    for _ in range(20):
        shown = clocks.jump("command", 7200)
    assert shown.startswith("command +86400 s")
