import asyncio
import base64
from pathlib import Path

import pytest

from tests.sandbox.conftest import Sandbox, StartSandbox, alive, b64, until
from tests.sandbox.test_channels import run_cases

SLEEPER = "import sys, time; time.sleep(60)"


async def test_timeout_keeps_what_was_written(every_isolation: Sandbox):
    code = "import time; print('before', flush=True); time.sleep(60)"
    answer = await every_isolation.run(code, run_timeout=2)
    assert answer["status"] == "Failed"
    result = answer["run_result"]
    assert (result["status"], result["return_code"]) == ("TimeLimitExceeded", None)
    assert result["stdout"] == "before\n"
    assert result["execution_time"] >= 2


@pytest.mark.parametrize("options", ["", ", start_new_session=True, stdout=-3, stderr=-3"])
async def test_children_end_with_their_program_and_do_not_hold_its_answer(
    every_isolation: Sandbox, token: str, options: str
):
    """With its standard output, and as a daemon."""
    command = f"[sys.executable, '-c', {SLEEPER!r}, {token!r}]"
    answer = await every_isolation.run(
        f"import subprocess, sys; subprocess.Popen({command}{options}); print('it is up')"
    )
    assert (answer["status"], answer["run_result"]["stdout"]) == ("Success", "it is up\n")
    assert not alive(token)


async def test_output_cap_is_told(start_sandbox: StartSandbox):
    sandbox = await start_sandbox(output_limit_bytes=100_000)
    result = (await sandbox.run("while True: print('x' * 1000)", run_timeout=60))["run_result"]
    assert (result["status"], result["return_code"]) == ("Finished", -9)
    assert len(result["stdout"]) == 100_000
    assert "output limit of 100000 bytes exceeded" in result["stderr"]
    exact = (await sandbox.run("print('x' * 99_999)"))["run_result"]
    assert (exact["return_code"], len(exact["stdout"])) == (0, 100_000)


async def test_output_limit_of_cases(every_isolation: Sandbox):
    """Output up to the limit is complete, from any process; one more byte ends the program."""
    code = (
        "import os, sys\nhow, size = input().split()\nsize = int(size)\n"
        "if how == 'print': print('x' * size, end='')\n"
        "if how == 'child' and os.fork() == 0: os.write(1, b'x' * size); os._exit(0)\n"
        "if how == 'shell': os.system(f'head -c {size} /dev/zero > /dev/stdout')\n"
        "if how == 'error': print('x' * size, file=sys.stderr)\n"
    )
    limit = 300_000
    inputs = [f"{how} {size}" for how in ("print", "child", "shell") for size in (limit, limit + 1)]
    _, result = await run_cases(every_isolation, code, [*inputs, "error 9000000"], output=limit)
    *loud, errors = result["cases"].values()
    assert [case["limit"] for case in loud] == [None, "output"] * 3
    assert [len(base64.b64decode(case["stdout"])) for case in loud] == [limit, 0] * 3
    assert (errors["exit_code"], errors["limit"], len(errors["stderr"])) == (0, None, 4096)
    endless = "import os\nwhile True: os.write(1, b'x' * 100000)"
    _, result = await run_cases(every_isolation, endless, ["", ""], output=limit, cpu=20)
    assert [case["limit"] for case in result["cases"].values()] == ["output"] * 2


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


BOMB = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"


async def test_fork_bomb_is_contained(every_isolation: Sandbox):
    if "no limit of processes" in (await every_isolation.ready())["missing"]:
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
    answer = await every_isolation.run(code, run_timeout=20)
    assert 0 < int(answer["run_result"]["stdout"]) <= 256
    for bomb, language in ((BOMB, "python"), ("f() { f | f & }; f; sleep 30", "bash")):
        answer = await every_isolation.run(bomb, language, run_timeout=1)
        assert answer["status"] == "Failed"
    _, result = await run_cases(every_isolation, BOMB, ["", ""], cpu=1, wall=1)
    assert [bool(case["limit"]) for case in result["cases"].values()] == [True] * 2
    assert (await every_isolation.run("print('still here')"))["status"] == "Success"
    _, result = await run_cases(every_isolation, "print('still here')", [""])
    assert result["cases"]["0"]["exit_code"] == 0


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
