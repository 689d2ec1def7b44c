"""Entry point ``python -m services.sandbox``: serve until SIGTERM.

With ``--wait`` the process starts, and reads from standard input where to log and to write its port
when it is about to listen: ``{"log": "…", "port_file": "…"}``. Its standard output is a temporary
file until then.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from aiohttp import web

from services.sandbox.app import create_app
from services.sandbox.settings import SandboxSettings
from shared.service.processes import run_service
from shared.service.server import serve

_LOGGED = 2**20  # bytes of the log at the start that are kept


def main() -> int:
    return run_service("sandbox", SandboxSettings, _serve)


def _serve(settings: SandboxSettings) -> None:
    app = create_app(settings)
    if sys.argv[1:] == ["--wait"]:
        app.on_startup.append(_receive)
    asyncio.run(serve(app, settings, shutdown_timeout=settings.shutdown_seconds))


async def _receive(_app: web.Application) -> None:
    await asyncio.to_thread(_receive_files)


def _receive_files() -> None:
    """Read standard input to its end; stop if the other side closed it without a text."""
    text = sys.stdin.read()
    if not text:
        signal.raise_signal(signal.SIGTERM)
        return
    files = json.loads(text)
    os.environ["PLUMBLINE_PORT_FILE"] = files["port_file"]
    with Path(files["log"]).open("ab") as log:
        log.write(os.pread(1, _LOGGED, 0))
        log.flush()
        for standard in (1, 2):
            os.dup2(log.fileno(), standard)


if __name__ == "__main__":
    sys.exit(main())
