import os
import secrets

import pytest

from services.sandbox import probe
from services.sandbox.probe import IsolationError
from services.sandbox.settings import IsolationChoice
from shared.run_record import SandboxFacts
from tests.sandbox.conftest import Sandbox, StartSandbox, b64
from tests.sandbox.installations import python_for
from tests.sandbox.test_channels import change_source, run_cases


async def test_programs_user_holds_no_capability(namespaced: Sandbox):
    answer = await namespaced.run("grep -E 'CapEff|CapBnd' /proc/self/status", "bash")
    assert {line.split()[1] for line in answer["run_result"]["stdout"].splitlines()} == {"0" * 16}


async def test_none_is_loud(start_sandbox: StartSandbox):
    ready = await (await start_sandbox(isolation=IsolationChoice.NONE)).ready()
    assert ready["ready"] is True
    assert ready["isolation"] == "none"
    assert "without isolation" in ready["warning"]
    assert ready["missing"]


@pytest.mark.skipif(os.geteuid() != 0, reason="without root all programs have the server's user")
async def test_none_leaves_nothing_in_folders_of_the_machine(start_sandbox: StartSandbox):
    sandbox = await start_sandbox(isolation=IsolationChoice.NONE, concurrency=1)
    names = [f"{folder}/{secrets.token_hex(8)}" for folder in ("/tmp", "/var/tmp", "/dev/shm")]
    code = (
        f"import os\nfor name in {names}:\n"
        "    print(os.path.exists(name)); os.makedirs(name + '/inner'); os.chmod(name, 0)"
    )
    for _ in range(2):
        answer = await sandbox.run(code)
        assert answer["run_result"]["stdout"] == "False\n" * 3
    _, result = await run_cases(sandbox, code, ["", ""])
    assert [case["stdout"] for case in result["cases"].values()] == [b64("False\n" * 3)] * 2
    assert not any(map(os.path.lexists, names))


async def test_landlock_says_what_it_covers_and_what_not(start_sandbox: StartSandbox):
    sandbox = await _landlock(start_sandbox)
    ready = await sandbox.ready()
    assert (ready["isolation"], ready["ready"]) == ("landlock", True)
    assert {"system calls", "files"} <= set(ready["covered"])
    assert "no private /tmp" in ready["missing"]
    signals = "signals between programs" in ready["covered"]
    assert signals != ("processes of the same user can be signalled" in ready["missing"])
    assert "warning" not in ready
    facts = SandboxFacts.model_validate(ready)
    assert facts.covered == ready["covered"]


async def test_without_landlock_the_next_rung_is_taken_and_the_reason_told(
    start_sandbox: StartSandbox, monkeypatch: pytest.MonkeyPatch
):
    change_source(monkeypatch, "confinement", "\ndef landlock_abi(): return 0\n")
    with pytest.raises(IsolationError, match="this kernel or container offers no Landlock"):
        await start_sandbox(isolation=IsolationChoice.LANDLOCK)
    monkeypatch.setattr(probe, "PREFERENCE", (IsolationChoice.LANDLOCK, IsolationChoice.NONE))
    ready = await (await start_sandbox(python=python_for("none"))).ready()
    assert ready["isolation"] == "none"
    assert set(ready["tried"]) >= {f"landlock ({'slot' if os.geteuid() == 0 else 'server'} user)"}
    assert all("\n" not in reason for reason in ready["tried"].values())


async def _landlock(start_sandbox: StartSandbox) -> Sandbox:
    try:
        return await start_sandbox(isolation=IsolationChoice.LANDLOCK)
    except IsolationError as error:
        pytest.skip(str(error))
