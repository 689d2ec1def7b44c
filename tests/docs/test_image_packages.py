"""What images install is decided by hashes: no package is built with what pip fetches for it."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT

FOLDER = ROOT / "packaging" / "images"
DOCKERFILES = sorted(ROOT.glob("services/*/Dockerfile*"))
_PIP = re.compile(r"-m pip .*?\b(?:install|wheel)\b(?:.*\\\n)*.*")
# A build without a network, with what is there, of wheels only; or of the build backend itself.
_DECIDED = re.compile(r"--no-index|--no-build-isolation|--only-binary :all:|-r \S*build\.lock")

# A stand-in of python that keeps what pip is asked for, and "builds" a wheel.
PYTHON = """#!/bin/sh
echo "$@" >> "$CALLS"
for argument in "$@"; do
  case $argument in *.lock) sed 's/^/  /' "$argument" >> "$CALLS" ;; esac
done
case "$*" in *" wheel "*) while [ "$1" != -w ]; do shift; done; : > "$2/built.whl" ;; esac
"""


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_is_built_with_what_pip_fetches(file: Path) -> None:
    text = file.read_text("utf-8")
    assert [call for call in _PIP.findall(text) if not _DECIDED.search(call)] == []
    assert "pip-install.sh /src/" in text or "--require-hashes" in text


def installed(tmp_path: Path, lock: Path) -> str:
    """What the script asks pip for."""
    calls, python = tmp_path / "calls", tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(calls), "VENV": "/venv"}
    script = FOLDER / "pip-install.sh"
    subprocess.run([script, lock, "--no-compile"], env=environment, check=True, timeout=60)
    return calls.read_text("utf-8")


def test_a_source_is_built_with_the_locked_backend(tmp_path: Path) -> None:
    text = installed(tmp_path, FOLDER / "runner.lock")
    wheels, backend, source, built = re.split(r"^(?=-m pip)", text, flags=re.M)[1:]
    assert "--only-binary :all: --require-hashes --no-compile" in wheels
    assert "antlr4" not in wheels
    assert "  omegaconf==" in wheels
    assert "  setuptools==" in backend and "--require-hashes" in backend
    assert "wheel -q --no-deps --no-build-isolation --require-hashes" in source
    packages = [line for line in source.splitlines() if line.startswith("  ")]
    assert len(packages) == 2  # the package, and its one hash
    assert packages[0].startswith("  antlr4-python3-runtime==")
    assert built.startswith("-m pip --python /venv/bin/python install -q --no-deps --no-index")
    assert built.endswith("/built.whl\n")


def test_a_lock_of_wheels_needs_no_backend(tmp_path: Path) -> None:
    text = installed(tmp_path, FOLDER / "judge.lock")
    assert text.count("-m pip") == 1
    assert "setuptools" not in text
