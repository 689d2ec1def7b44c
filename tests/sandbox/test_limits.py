import asyncio
from pathlib import Path

import pytest

from tests.sandbox.conftest import Sandbox, StartSandbox, alive, b64, until

SLEEPER = "import sys, time; time.sleep(60)"
DAEMON = """
import os, subprocess, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2): os.dup2(null, fd)
        os.execv(sys.executable, [sys.executable, "-c", {sleeper!r}, {token!r}])
    os._exit(0)
os.wait()
def runs(p):
    try:
        return {token!r} in open(f"/proc/{{p}}/cmdline").read()
    except OSError:  # of a process that ended just now
        return False
while not any(runs(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()):
    pass
print("daemon is up", flush=True)
"""


def daemon(token: str) -> str:
    return DAEMON.format(sleeper=SLEEPER, token=token)


async def test_timeout_keeps_what_was_written(every_isolation: Sandbox):
    code = "import time; print('before', flush=True); time.sleep(60)"
    answer = await every_isolation.run(code, run_timeout=2)
    assert answer["status"] == "Failed"
    result = answer["run_result"]
    assert (result["status"], result["return_code"]) == ("TimeLimitExceeded", None)
    assert result["stdout"] == "before\n"
    assert result["execution_time"] >= 2


async def test_daemon_dies_with_a_program_that_ends(every_isolation: Sandbox, token: str):
    answer = await every_isolation.run(daemon(token))
    assert answer["run_result"]["stdout"] == "daemon is up\n", answer
    assert not alive(token)


async def test_child_that_holds_stdout_does_not_hold_the_answer(
    every_isolation: Sandbox, token: str
):
    code = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPER!r}, {token!r}])"
    )
    answer = await every_isolation.run(code)
    assert answer["status"] == "Success"
    assert not alive(token)


async def test_output_cap_is_told(start_sandbox: StartSandbox):
    sandbox = await start_sandbox(output_limit_bytes=100_000)
    result = (await sandbox.run("while True: print('x' * 1000)", run_timeout=60))["run_result"]
    assert (result["status"], result["return_code"]) == ("Finished", -9)
    assert len(result["stdout"]) == 100_000
    assert "output limit of 100000 bytes exceeded" in result["stderr"]
    exact = (await sandbox.run("print('x' * 99_999)"))["run_result"]
    assert (exact["return_code"], len(exact["stdout"])) == (0, 100_000)


async def test_memory_limit(every_isolation: Sandbox):
    answer = await every_isolation.run("bytearray(900 << 20)", memory_limit_MB=256)
    assert answer["run_result"]["return_code"] == 1
    assert "MemoryError" in answer["run_result"]["stderr"]
    fits = await every_isolation.run("print(len(bytearray(64 << 20)))", memory_limit_MB=256)
    assert fits["run_result"]["stdout"] == f"{64 << 20}\n"


async def test_file_size_limit(start_sandbox: StartSandbox):
    sandbox = await start_sandbox(file_limit_bytes=1 << 20)
    answer = await sandbox.run("open('big', 'wb').write(b'x' * (2 << 20))")
    assert answer["status"] == "Failed"
    assert "File too large" in answer["run_result"]["stderr"]


async def test_fork_bomb_is_contained(isolated: Sandbox, token: str):
    if "no limit of processes" in (await isolated.ready())["missing"]:
        pytest.skip("the number of processes cannot be limited here")
    code = (
        "import os, time\n"
        "count = 0\n"
        "try:\n"
        "    while True:\n"
        "        if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "        count += 1\n"
        "except BlockingIOError:\n"
        "    print(count)"
    )
    answer = await isolated.run(code, run_timeout=20)
    assert 0 < int(answer["run_result"]["stdout"]) <= 256
    bomb = await isolated.run(f": {token}; f() {{ f | f & }}; f; sleep 30", "bash", run_timeout=1)
    assert bomb["status"] == "Failed"
    assert (await isolated.run("print('still here')"))["status"] == "Success"


async def test_client_that_leaves_stops_its_program(every_isolation: Sandbox, token: str):
    code = (
        f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', {SLEEPER!r}, {token!r}])"
    )
    request = asyncio.create_task(every_isolation.run(code, run_timeout=60))
    await until(lambda: alive(token))
    request.cancel()
    await until(lambda: not alive(token))
    await until(lambda: _is_zero(every_isolation, "plumbline_sandbox_in_flight"))


async def _is_zero(sandbox: Sandbox, metric: str) -> bool:
    return await sandbox.metric(metric) == 0


async def test_files_stay_inside(sandbox: Sandbox):
    for name in ("../up.txt", "/tmp/abs.txt", "a/../../b", "", "\0", "a/.."):
        written = await sandbox.run("print(1)", files={name: b64("x")})
        fetched = await sandbox.run("print(1)", fetch_files=[name])
        for answer in (written, fetched):
            assert (answer["status"], answer["run_result"]) == ("SandboxError", None), name
            assert "path" in answer["message"], name


async def test_fetch_follows_no_links(every_isolation: Sandbox, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    code = (
        f"ln -s {secret} link; ln -s {tmp_path} folder; mkfifo pipe; ln -s /etc etc; echo ok > fine"
    )
    names = ["link", "folder/secret", "pipe", "etc/passwd", "fine"]
    answer = await every_isolation.run(code, "bash", fetch_files=names)
    assert answer["files"] == {"fine": b64("ok\n")}
