"""Aggregator process for tests: start, stop, address."""

import os
import subprocess
import sys
import time
from pathlib import Path


class Aggregator:
    """``log``: the file that its standard error goes to (a pipe that nobody reads would fill)."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        command: tuple[str, ...] = ("-m", "services.aggregator"),
        **settings: str,
    ) -> None:
        (folder / "tmp").mkdir()
        self.temporary = folder / "tmp"
        port = folder / "port"
        environment = {"REDIS_URL": url, "PORT": "0", "PLUMBLINE_PORT_FILE": str(port)}
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                env=os.environ | environment | {"TMPDIR": str(self.temporary)} | settings,
                stderr=log,
            )
        while not port.exists() and self.process.poll() is None:
            time.sleep(0.02)
        self.url = f"http://127.0.0.1:{port.read_text().strip()}" if port.exists() else ""
