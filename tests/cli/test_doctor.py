"""`plumb doctor`: what it finds on a machine, and what it says without a config."""

import os
from pathlib import Path

import pytest

from tests.cli.commands import plumb

SECRET = "wAndb-0123456789-secret"


def program(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of stand-ins in front of the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def lines(output: str) -> dict[str, tuple[str, str]]:
    """Mark and text of each line, by subject."""
    found = {}
    for line in output.splitlines():
        mark, rest = line[:6].strip(), line[7:]
        subject, _, text = rest.partition(": ")
        found[subject] = (mark, text)
    return found


def test_a_machine_without_a_config(tmp_path: Path, programs: Path) -> None:
    program(
        programs, "nvidia-smi", "echo 'NVIDIA H200, 143771 MiB'; echo 'NVIDIA H200, 143771 MiB'"
    )
    program(programs, "docker", "case $1 in version) echo 27.1.1;; *) echo 2.29.0;; esac")
    key = tmp_path / "key"
    key.write_text(SECRET)
    done = plumb(
        "doctor",
        folder=tmp_path,
        PATH=f"{programs}:{os.environ['PATH']}",
        WANDB_API_KEY_FILE=str(key),
        OPENAI_API_KEY=SECRET,
        HF_TOKEN="",
    )
    assert done.code == 0, done.stdout + done.stderr
    found = lines(done.stdout)
    assert found["GPUs"] == ("ok", "2, NVIDIA H200, 143771 MiB")
    assert found["Docker"] == ("ok", "27.1.1, Compose 2.29.0")
    assert found["OPENAI_API_KEY"] == ("ok", "set")
    assert found["WANDB_API_KEY"] == ("ok", "set by its file")
    assert found["HF_TOKEN"][0] == "note"
    assert SECRET not in done.stdout + done.stderr
    assert found["interpreter"][1].startswith("Python 3.")
    assert found["isolation"][0] in ("ok", "note")
    assert "python" in found["languages"][1]
    assert found["redis-server"][0] == "ok"
    assert found["verl"][0] in ("ok", "note")
    assert found["data"][0] == "note"
    assert found["data"][1].startswith("no data sets: `plumb data prepare")
    assert "FAILED" not in done.stdout  # nobody named a Redis or a sandbox


def test_what_is_broken_has_its_remedy(tmp_path: Path, programs: Path) -> None:
    program(programs, "nvidia-smi", "echo 'Failed to initialize NVML'; exit 18")
    program(programs, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    done = plumb(
        *("doctor", "generation.verl.python=/no/such/python"),
        folder=tmp_path,
        PATH=f"{programs}:{os.environ['PATH']}",
        HF_TOKEN_FILE=str(tmp_path / "missing"),
        REDIS_URL="redis://127.0.0.1:9/0",
        SANDBOX_URLS="http://127.0.0.1:9",
    )
    assert done.code == 1
    found = lines(done.stdout)
    assert found["GPUs"][0] == "note"
    assert "none: Failed to initialize NVML; mend the driver, or" in found["GPUs"][1]
    assert "no engine answers: Cannot connect" in found["Docker"][1]
    assert "make install-verl" in found["verl"][1]
    assert found["HF_TOKEN"][0] == "FAILED"
    assert "cannot be read" in found["HF_TOKEN"][1]
    assert found["Redis"][0] == "FAILED"
    assert "3 of the checks failed" in done.line
