"""Aggregator process for tests: start, stop, address."""

import os
from pathlib import Path

from tests.cli.fork_server import start_forked
from tests.waiting import until


class Aggregator:
    """``log`` is the file of its standard error, ``temporary`` its folder of temporary files."""

    def __init__(self, url: str, folder: Path, **settings: str) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        port = folder / "port"
        environment = {"REDIS_URL": url, "PORT": "0", "PLUMBLINE_PORT_FILE": str(port)}
        environment |= {"TMPDIR": str(self.temporary)}
        self.log = folder / "log"
        outputs = (folder / "stdout", self.log)
        settings = os.environ | environment | settings
        self._process = start_forked([], folder, settings, outputs, "services.aggregator")
        until(
            "its port is known", lambda: port.exists() or not self._process.is_alive(), every=0.02
        )
        self.url = f"http://127.0.0.1:{port.read_text().strip()}" if port.exists() else ""

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def terminate(self) -> int | None:
        """End it in order; returns its exit code."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> int | None:
        """Wait for its end; returns its exit code."""
        self._process.join(60)
        return self._process.exitcode
