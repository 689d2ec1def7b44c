"""Sandbox for tests and benchmarks: the one at ``SANDBOX_URL``, or this repository's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.processes import service_process

EXTERNAL = "SANDBOX_URL"
# Set where all rungs must work: there a missing one is an error instead of a skip.
EXPECTED = "PLUMBLINE_TEST_ALL_RUNGS"


# The isolations of `make test`: one with namespaces, and Landlock. `none` runs nightly.
ORDINARY_RUNGS = "bwrap", "landlock"


def rungs(*kinds: str) -> list[Any]:
    """Parameters for a test of these isolations, with the mark ``nightly`` where it belongs."""
    return [
        pytest.param(kind, marks=() if kind in ORDINARY_RUNGS else pytest.mark.nightly)
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
