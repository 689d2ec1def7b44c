"""Process of a service: its memory after a burst of large blocks, and the end of its tasks."""

import asyncio
import json
import os
import platform
import subprocess
import sys

import pytest

from shared.service.processes import cancel_and_wait

_BURST = """
import json
from shared.service.processes import run_service
from shared.service.settings import ServiceSettings

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) // 1024

def serve(_settings):
    del (lambda: bytearray(30 * 2**20))()[:]  # what an answer of megabytes takes, freed
    before, kept = resident(), []
    large = []
    for number in range(50):
        large.append(bytearray(2 * 2**20))
        large[-1][::4096] = bytes(512)
        kept.append(bytes(4000))  # what is remembered of it
    most = resident()
    large.clear()
    print(json.dumps([most - before, resident() - before]))

run_service("judge", ServiceSettings, serve)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of the GNU C library")
def test_what_a_burst_took_is_returned() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BURST], capture_output=True, text=True, check=True, env=os.environ
    )
    most, left = json.loads(done.stdout)
    assert most > 90
    assert left < 10


async def test_a_swallowed_cancellation_is_repeated() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while swallowed < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
        await asyncio.Event().wait()

    async def ended() -> None:
        return

    tasks = [asyncio.create_task(stubborn()), asyncio.create_task(ended())]
    await tasks[1]
    await asyncio.sleep(0)
    await cancel_and_wait(*tasks)
    assert [task.cancelled() for task in tasks] == [True, False]
    assert swallowed == 2
