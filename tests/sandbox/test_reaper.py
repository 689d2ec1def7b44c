"""What a container without a process namespace leaves is killed, also what keeps forking."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

USER = 62_999
BOMB = f"""
import os, resource
os.setuid({USER})
resource.setrlimit(resource.RLIMIT_NPROC, (80, 80))
os.setsid()
print(flush=True)
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
"""
# Runs in its own process, because a reaper adopts every orphan below it.
SERVER = f"""
import asyncio, os, subprocess, sys, time
from services.sandbox.reaper import Reaper
reaper = Reaper()
bomb = subprocess.Popen([sys.executable, "-c", {BOMB!r}], stdout=subprocess.PIPE)
bomb.stdout.readline()
reaper.add(bomb.pid)
time.sleep(0.5)
asyncio.run(reaper.end(bomb.pid, orphans=True, user={USER}))
print(open("/proc/self/task/%d/children" % os.getpid()).read().split())
"""


# The bomb starves whatever runs beside it.
pytestmark = [pytest.mark.alone, pytest.mark.nightly]


@pytest.mark.skipif(os.geteuid() != 0, reason="programs have no users of their own")
async def test_a_fork_bomb_ends_with_its_container():
    root = Path(__file__).parents[2]
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", SERVER], capture_output=True, text=True, cwd=root
    )
    assert run.stdout.splitlines()[-1] == "[]", run
