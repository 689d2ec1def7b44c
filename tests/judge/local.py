"""Runs function-test programs and the harness on this machine, without a sandbox."""

import base64
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from services.judge.methods.functions import codes_of, reported_codes
from services.judge.sandbox import harness_files, source
from services.judge.verdict import exit_detail
from shared.harness import wire
from shared.harness.wire import CallResult, CaseLimits, RunCasesRequest
from shared.statuses import CaseCode


def place_harness(
    folder: Path,
    program: bytes,
    inputs: Sequence[bytes],
    limits: CaseLimits,
    language: str = "python",
) -> tuple[Path, bytes]:
    """Write a call and the harness into a folder; return the main program and its input's rest.

    The input is a key in hexadecimal, a line's end, and that rest.
    """
    texts = ["x" * len(stdin) for stdin in inputs]  # the real ones need not be UTF-8
    request = RunCasesRequest(code="", language=language, inputs=texts, limits=limits)
    words = wire.encode_call(request).split()
    words[10] = b"%d" % len(program)
    files = {name: base64.b64decode(content) for name, content in harness_files().items()}
    for name, content in {**files, wire.CALL: b" ".join(words) + b"\n" + program}.items():
        (folder / name).write_bytes(content)
    main = folder / "main.py"
    main.write_text(source("boot"))
    return main, b"\n" + b"".join(inputs)


def results_of(folder: Path, key: bytes) -> CallResult:
    """Return the results that the harness left in a folder."""
    path = folder / wire.RESULTS
    return wire.decode_results(wire.verified(path.read_bytes() if path.exists() else b"", key))


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
