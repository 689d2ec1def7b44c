"""Entry point ``python -m services.sandbox``: serve until SIGTERM.

With ``--wait`` the process has imported its modules before it reads, from standard input, its log
file and further environment variables: ``{"log": "…", "environment": {…}}``.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from services.sandbox.app import create_app
from services.sandbox.settings import SandboxSettings
from shared.service.processes import run_service
from shared.service.server import serve


def main() -> int:
    if sys.argv[1:] == ["--wait"] and not _received_settings():
        return 0
    return run_service("sandbox", SandboxSettings, _serve)


def _received_settings() -> bool:
    """Read standard input to its end; False if the other side closed it without settings."""
    text = sys.stdin.read()
    if not text:
        return False
    settings = json.loads(text)
    # A sandbox that is restarted has the port of the one before in its environment.
    port = {name: os.environ[name] for name in ["PORT"] if name in os.environ}
    os.environ.update(settings["environment"] | port)
    with Path(settings["log"]).open("ab") as log:
        for standard in (1, 2):
            os.dup2(log.fileno(), standard)
    return True


def _serve(settings: SandboxSettings) -> None:
    app = create_app(settings)
    asyncio.run(serve(app, settings, shutdown_timeout=settings.shutdown_seconds))


if __name__ == "__main__":
    sys.exit(main())
