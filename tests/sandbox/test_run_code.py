import base64
import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sandbox.conftest import Sandbox


async def test_ping_and_health(sandbox: Sandbox):
    async with sandbox.session.get(f"{sandbox.url}/v1/ping") as answer:
        assert await answer.json() == "pong"
    async with sandbox.session.get(f"{sandbox.url}/health") as answer:
        assert (answer.status, await answer.json()) == (200, "pong")
    async with sandbox.session.get(f"{sandbox.url}/healthz") as answer:
        assert (answer.status, await answer.json()) == (200, {"status": "alive"})
    async with sandbox.session.get(f"{sandbox.url}/nowhere") as answer:
        assert (answer.status, await answer.json()) == (404, {"detail": "Not Found"})
    async with sandbox.session.get(f"{sandbox.url}/run_code") as answer:
        assert (answer.status, await answer.json()) == (405, {"detail": "Method Not Allowed"})


async def test_answer_has_every_key(every_isolation: Sandbox):
    answer = await every_isolation.run("print('hello')")
    assert answer.pop("run_result").pop("execution_time") > 0
    assert answer == {
        "status": "Success",
        "message": "",
        "compile_result": None,
        "executor_pod_name": None,
        "files": {},
    }


RETURN_CODES = [
    ("raise SystemExit(3)", 3),
    ("import os; os._exit(137)", 137),
    ("import os; os.abort()", -6),
    ("import os; os.kill(os.getpid(), 9)", -9),
    ("import os; os.kill(os.getpid(), 11)", -11),
    ("import os; os.kill(os.getpid(), 15)", -15),
    ("raise KeyboardInterrupt", -2),
]


async def test_return_codes(every_isolation: Sandbox):
    for code, return_code in RETURN_CODES:
        answer = await every_isolation.run(code)
        ended = answer["run_result"]["status"], answer["run_result"]["return_code"]
        assert (answer["status"], *ended) == ("Failed", "Finished", return_code), code


async def test_shell_says_nothing_into_the_programs_stderr(every_isolation: Sandbox):
    answer = await every_isolation.run("kill -SEGV $$", "bash")
    assert answer["run_result"] | {"execution_time": 0} == {
        "status": "Finished",
        "execution_time": 0,
        "return_code": -11,
        "stdout": "",
        "stderr": "",
    }


async def test_large_output_is_complete(sandbox: Sandbox):
    size = 5_000_000
    code = f"import sys; sys.stdout.write('o'*{size}); sys.stderr.write('e'*{size})"
    result = (await sandbox.run(code))["run_result"]
    assert result["return_code"] == 0
    assert (result["stdout"], result["stderr"]) == ("o" * size, "e" * size)


async def test_undecodable_output_is_replaced(sandbox: Sandbox):
    result = (await sandbox.run(r"import os; os.write(1, b'ok \xff'); os.write(2, b'fine')"))[
        "run_result"
    ]
    assert result["stdout"].startswith("[DecodeError] 'utf-8' codec can't decode byte 0xff")
    assert (result["stderr"], result["return_code"]) == ("fine", 0)


@pytest.mark.parametrize("stdin", [None, "", "a line\n", "é\r\n\0", "x" * 3_000_000])
async def test_stdin_arrives_whole(sandbox: Sandbox, stdin: str | None):
    code = "import sys, hashlib; print(hashlib.sha1(sys.stdin.buffer.read()).hexdigest())"
    answer = await sandbox.run(code, stdin=stdin)
    expected = hashlib.sha1((stdin or "").encode()).hexdigest()
    assert answer["run_result"]["stdout"] == expected + "\n"


async def test_lone_surrogates_are_an_error_that_says_so(sandbox: Sandbox):
    status, answer = await sandbox.post(code="a\ud800b", language="python")
    assert (status, answer["status"]) == (200, "SandboxError")
    assert answer["message"]


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=5000))
async def test_files_go_in_and_come_out_unchanged(sandbox: Sandbox, data: bytes):
    encoded = base64.b64encode(data).decode()
    answer = await sandbox.run(
        "cp in/a.bin 'out b.bin'",
        "bash",
        files={"in/a.bin": encoded},
        fetch_files=["out b.bin", "absent", "in"],
    )
    assert answer["files"] == {"out b.bin": encoded}
