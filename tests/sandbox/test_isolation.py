from pathlib import Path

import pytest

from services.sandbox.probe import IsolationError
from services.sandbox.settings import IsolationChoice
from tests.sandbox.conftest import Sandbox, StartSandbox


async def test_environment_is_clean(start_sandbox: StartSandbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    sandbox = await start_sandbox()
    answer = await sandbox.run("import os; print(sorted(os.environ))")
    names = set(eval(answer["run_result"]["stdout"]))
    assert names <= {
        "HOME", "LANG", "PATH", "PWD", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED",
    }  # fmt: skip


async def test_server_environment_cannot_be_read(
    isolated: Sandbox,
):
    code = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c PYTEST || true"
    answer = await isolated.run(code, "bash")
    assert answer["run_result"]["stdout"] == "0\n"


async def test_network_is_unreachable(isolated: Sandbox):
    port = isolated.url.rpartition(":")[2]
    code = (
        "import socket\n"
        f"for address in (('127.0.0.1', {port}), ('1.1.1.1', 53)):\n"
        "    try: socket.create_connection(address, 2); print('reached')\n"
        "    except OSError as error: print('no')"
    )
    answer = await isolated.run(code)
    assert answer["run_result"]["stdout"] == "no\nno\n"


async def test_system_is_read_only_and_tmp_private(isolated: Sandbox):
    code = (
        "for d in /usr /etc / /opt; do touch $d/x 2>/dev/null && echo wrote $d; done;"
        "ls /tmp | wc -l; touch /tmp/mine . && echo private; id -u; ls /root /home 2>/dev/null"
    )
    first = await isolated.run(code, "bash")
    second = await isolated.run(code, "bash")
    for answer in (first, second):
        lines = answer["run_result"]["stdout"].split("\n")
        assert not [line for line in lines if line.startswith("wrote /") and line != "wrote /"]
        assert "1" in lines
        assert "private" in lines


async def test_program_has_its_own_processes(isolated: Sandbox):
    answer = await isolated.run("import os; print(os.getpid() < 20, len(os.listdir('/proc')) > 5)")
    assert answer["run_result"]["stdout"] == "True True\n"


async def test_programs_user_holds_no_capability(isolated: Sandbox):
    answer = await isolated.run("grep -E 'CapEff|CapBnd' /proc/self/status", "bash")
    assert {line.split()[1] for line in answer["run_result"]["stdout"].splitlines()} == {"0" * 16}


async def test_none_is_loud(start_sandbox: StartSandbox):
    ready = await (await start_sandbox(isolation=IsolationChoice.NONE)).ready()
    assert ready["ready"] is True
    assert ready["isolation"] == "none"
    assert "without isolation" in ready["warning"]
    assert ready["missing"]


async def test_forced_isolation_that_does_not_work_is_an_error(
    start_sandbox: StartSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IsolationError, match="bwrap"):
        await start_sandbox(isolation=IsolationChoice.BWRAP)
