"""Runs function-test programs and the harness on this machine, without a sandbox."""

import base64
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from services.judge.harness.call import harness_files, source
from services.judge.programs import codes_of, exit_detail, reported_codes
from shared.harness import wire
from shared.statuses import CaseCode


def place_harness(folder: Path, program: bytes) -> Path:
    """Write an answer and the harness into a folder; return the harness's main program."""
    (folder / wire.ANSWER).write_bytes(program)
    for name, content in harness_files().items():
        (folder / name).write_bytes(base64.b64decode(content))
    main = folder / "main.py"
    main.write_text(source("boot"))
    return main


def run_program(
    program: str, cases: int = 1, timeout: float = 10
) -> tuple[list[CaseCode], str | None, str]:
    """Run with a fresh token on standard input, classify; the third value is the standard error."""
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "main.py").write_text(program, encoding="ascii")
        process = subprocess.Popen(
            [sys.executable, "main.py"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            stdout, stderr = process.communicate(token, timeout=timeout)
            timed_out = False
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            timed_out = True
    codes = codes_of(reported_codes(stdout, token), cases, timed_out)
    return codes, exit_detail(codes, process.returncode, stderr, timed_out), stderr
