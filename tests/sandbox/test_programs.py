"""The programs' environment: what programs can import, and where it comes from."""

import json
from pathlib import Path

import pytest

from services.sandbox import programs
from services.sandbox.settings import SandboxSettings
from shared.errors import ServiceError
from tests.sandbox.conftest import StartSandbox

FOUND = """
import json, os
from importlib.metadata import distributions
import numpy
threads = len(os.listdir("/proc/self/task"))
print(json.dumps([sorted(one.metadata["Name"] for one in distributions()), threads]))
"""


async def test_programs_find_the_lock_and_nothing_else(
    start_sandbox: StartSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/usr/lib/python3/dist-packages")
    monkeypatch.setenv("PYTHONUSERBASE", "/usr")
    sandbox = await start_sandbox()
    answer = await sandbox.run(FOUND)
    packages, threads = json.loads(answer["run_result"]["stdout"])
    assert packages == sorted(programs.packages())
    assert threads == 1
    ready = await sandbox.ready()
    assert sorted(ready["environment"]["packages"]) == packages
    assert ready["lacking"] == []


async def test_a_smaller_set_is_reported(start_sandbox: StartSandbox) -> None:
    base = programs.base_interpreter()
    sandbox = await start_sandbox(python=base)
    assert "nltk" in (await sandbox.ready())["lacking"]


def test_an_environment_that_is_not_there_is_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_OF_MACHINE", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not SandboxSettings().python.exists()
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ServiceError, match=r"services\.sandbox\.programs`, or judge with fewer"):
        programs.install()
    assert list(tmp_path.rglob("programs-*")) == []
