"""Sandbox for tests and benchmarks: the one at ``SANDBOX_URL``, or this repository's."""

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.cli.embedded.supervisor import ChildProcess, wait_until

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
    port_file = folder / "port"
    environment = {**os.environ, "HOST": "127.0.0.1", "PORT": "0", **settings}
    environment["PLUMBLINE_PORT_FILE"] = str(port_file)
    child = ChildProcess(
        "sandbox", [sys.executable, "-m", "services.sandbox"], folder / "log", environment
    )
    child.start()
    try:
        wait_until(port_file.exists, child)
        url = f"http://127.0.0.1:{port_file.read_text().strip()}"
        wait_until(lambda: answers_ready(url), child)
        yield url
    finally:
        child.stop(10)


def answers_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False
