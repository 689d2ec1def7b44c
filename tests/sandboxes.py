"""Sandbox for tests and benchmarks: the one at ``SANDBOX_URL``, or this repository's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes import service_process

EXTERNAL = "SANDBOX_URL"


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
