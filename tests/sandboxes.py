"""Sandbox for tests and benchmarks: the one at ``SANDBOX_URL``, or this repository's."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.processes import service_process

EXTERNAL = "SANDBOX_URL"
# Set where all rungs must work: there a missing one is an error instead of a skip.
EXPECTED = "PLUMBLINE_TEST_ALL_RUNGS"


@cache
def ordinary_rungs() -> tuple[str, str]:
    """The isolations of `make test`: one with namespaces, and Landlock. The others run nightly."""
    return ("bwrap" if EXPECTED in os.environ or _bwrap_works() else "unshare"), "landlock"


def _bwrap_works() -> bool:
    path = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")  # where the server looks
    if path is None:
        return False
    command = [path, "--unshare-all", "--ro-bind", "/", "/", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def rungs(*kinds: str) -> list[Any]:
    """Parameters for a test of these isolations, with the mark ``nightly`` where it belongs."""
    return [
        pytest.param(kind, marks=() if kind in ordinary_rungs() else pytest.mark.nightly)
        for kind in kinds
    ]


@contextmanager
def sandbox(folder: Path) -> Iterator[str]:
    """Yield a base URL; a sandbox that had to be started writes its log to ``folder``."""
    if url := os.environ.get(EXTERNAL):
        yield url.removesuffix("/").removesuffix("/run_code")
        return
    with own_sandbox(folder) as url:
        yield url


@contextmanager
def own_sandbox(folder: Path, **settings: str) -> Iterator[str]:
    """Start this repository's sandbox, with settings for its environment; yield its base URL."""
    files = folder / "log", folder / "port"
    with service_process("services.sandbox", *files, **settings) as (_, url):
        yield url
