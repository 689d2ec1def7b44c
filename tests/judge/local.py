"""Runs the harness on this machine, without a sandbox."""

import base64
from collections.abc import Sequence
from pathlib import Path

from services.judge.sandbox import harness_files, source
from shared.harness import wire
from shared.harness.wire import CallResult, CaseLimits, RunCasesRequest


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
