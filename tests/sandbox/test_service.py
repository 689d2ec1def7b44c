"""The server as a process: port file, log lines, SIGTERM."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from aiohttp import ClientSession

from tests.sandbox.conftest import Sandbox, alive, until

ROOT = Path(__file__).parents[2]


async def _start(port_file: Path, **env: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.sandbox",
        cwd=ROOT,
        env={**os.environ, "PORT": "0", "PLUMBLINE_PORT_FILE": str(port_file), **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )


async def _listening(process: asyncio.subprocess.Process) -> dict:
    assert process.stdout is not None
    async for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "listening":
            return event
    raise AssertionError("the server ended without listening")


async def test_sigterm_lets_the_running_finish(tmp_path: Path, token: str):
    process = await _start(tmp_path / "port")
    event = await _listening(process)
    assert int((tmp_path / "port").read_text()) == event["port"]
    async with ClientSession() as session:
        sandbox = Sandbox(session, f"http://127.0.0.1:{event['port']}")
        code = (
            "import os, sys; os.execv(sys.executable,"
            f" [sys.executable, '-c', 'import time; time.sleep(1); print(7)', {token!r}])"
        )
        running = asyncio.create_task(sandbox.run(code))
        await until(lambda: alive(token))
        process.send_signal(signal.SIGTERM)
        assert (await running)["run_result"]["stdout"] == "7\n"
    assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_impossible_isolation_ends_the_start(tmp_path: Path):
    (tmp_path / "sh").symlink_to("/bin/sh")
    process = await _start(
        tmp_path / "port", PLUMBLINE_SANDBOX_ISOLATION="bwrap", PATH=str(tmp_path)
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 1
    assert "bwrap is not installed" in output.decode()


async def test_a_folder_that_is_not_there_ends_the_start_in_one_line(tmp_path: Path):
    process = await _start(tmp_path / "none" / "port")
    _, stderr = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    (line,) = stderr.decode().splitlines()
    assert line.startswith("sandbox: ")
    assert "No such file" in line
