"""Real verl calls the client: its reward manager and its tools."""

import json
import os
import subprocess
from pathlib import Path

import plumbline_reward
import pytest

from tests.clients.stand_in import Server

ROOT = Path(__file__).parents[2]


@pytest.mark.verl
@pytest.mark.timeout(600)
def test_verl_loads_the_reward_function_and_the_tools(
    server: Server, verl_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    client = Path(plumbline_reward.__file__).parents[1]
    done = subprocess.run(
        [verl_python, ROOT / "tests/clients/verl_calls.py", server.url, tiny_model, tmp_path],
        env={**os.environ, "PYTHONPATH": str(client)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["reward"]["reward_score"] == 0.0
    assert found["reward"]["reward_extra_info"]["pass_ratio"] == 0.5
    assert found["tools"]["names"] == ["run_public_tests", "code_interpreter"]
    assert found["tools"]["interpreter"] == "echo"
    assert found["tools"]["share"] == 0.5
    assert found["tools"]["tests"].startswith("1 of 2 public tests passed.\nTest 2: wrong output")
    assert [body["purpose"] for body in server.bodies if "purpose" in body] == ["validation"]
