"""The judge's harness as root with exactly the capabilities that docs/operations.md names.

SandboxFusion's server is stood in for by what it does: a folder, and the program by `bash -c`.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from shared.harness.wire import CallResult, CaseLimits
from tests.judge.local import place_harness, results_of

PYTHON = "/usr/bin/python3"  # one that every user can read
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
LIMITS = CaseLimits(cpu=5, wall=10, compile=10, budget=30, memory=512 << 20, output=1 << 20)

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None or not Path(PYTHON).exists(),
    reason="needs root, setpriv and a Python of the system",
)

HOSTILE = """
import os
os.makedirs("locked/away")
open("locked/away/file", "w").close()
os.chmod("locked", 0)
try:
    os.kill(os.getppid(), 9)
except PermissionError:
    print("refused", os.getuid() != 0)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp"))  # others have to reach it
    yield path
    shutil.rmtree(path)


def run(folder: Path, answer: str, capabilities: Iterable[str]) -> CallResult:
    key = secrets.token_bytes(32)
    main, inputs = place_harness(folder, answer.encode(), [b"1\n", b"2\n"], LIMITS)
    bounding = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
    subprocess.run(
        ["setpriv", "--inh-caps=-all", f"--bounding-set={bounding}", "--no-new-privs",
         "/bin/bash", "-c", f"{PYTHON} {main}"],
        cwd=folder, input=key.hex().encode() + inputs,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    return results_of(folder, key)


def test_an_answer_is_another_user_and_cannot_end_the_harness(folder: Path):
    result = run(folder, HOSTILE, CAPABILITIES)
    assert result.end == "done"
    assert [case.stdout for case in result.cases.values()] == [b"refused True\n"] * 2
