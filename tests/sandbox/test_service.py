"""The server as a process: SIGTERM, and starts that fail."""

import asyncio
import os
import signal
from pathlib import Path

from aiohttp import ClientSession

from tests.processes import run_mains, service_process
from tests.sandbox.conftest import Sandbox, alive, until


async def test_sigterm_lets_the_running_finish(tmp_path: Path, session: ClientSession, token: str):
    files = tmp_path / "log", tmp_path / "port"
    with service_process("services.sandbox", *files) as (child, url):
        assert child.process is not None
        code = (
            "import os, sys; os.execv(sys.executable,"
            f" [sys.executable, '-c', 'import time; time.sleep(1); print(7)', {token!r}])"
        )
        running = asyncio.create_task(Sandbox(session, url).run(code))
        await until(lambda: alive(token))
        child.process.send_signal(signal.SIGTERM)
        assert (await running)["run_result"]["stdout"] == "7\n"
        assert await asyncio.to_thread(child.process.wait, 30) == 0


def test_a_start_that_fails_has_a_reason_in_one_line(tmp_path: Path):
    (tmp_path / "sh").symlink_to("/bin/sh")
    port = {"PORT": "0", "PLUMBLINE_PORT_FILE": str(tmp_path / "port")}
    environments = [
        {**os.environ, **port, "PLUMBLINE_SANDBOX_ISOLATION": "bwrap", "PATH": str(tmp_path)},
        {**os.environ, **port, "PLUMBLINE_PORT_FILE": str(tmp_path / "none" / "port")},
        {**os.environ, **port, "PLUMBLINE_SANDBOX_TEMP_ROOT": str(tmp_path / "none")},
    ]
    codes, lines = zip(*run_mains("services.sandbox", environments), strict=True)
    assert codes == (1, 2, 1)
    for line, reason in zip(lines, ("bwrap is not installed", "No such file", "none"), strict=True):
        assert line.startswith("sandbox: ")
        assert "\n" not in line.strip()
        assert reason in line
    assert "interpreter" not in lines[2]
