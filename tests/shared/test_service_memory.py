"""Memory of a service after a burst of large blocks."""

import json
import os
import platform
import subprocess
import sys

import pytest

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
