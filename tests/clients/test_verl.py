"""Real verl calls the client's tools; its reward is tested in tests/training."""

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
def test_verl_loads_the_tools(server: Server, verl_python: Path, tmp_path: Path) -> None:
    client = Path(plumbline_reward.__file__).parents[1]
    done = subprocess.run(
        [verl_python, ROOT / "tests/clients/verl_calls.py", server.url, tmp_path],
        env={**os.environ, "PYTHONPATH": str(client)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["names"] == ["run_public_tests", "code_interpreter"]
    assert document["interpreter"] == "echo"
    assert document["share"] == 0.5
    assert document["tests"].startswith("1 of 2 public tests passed.\nTest 2: wrong output")
