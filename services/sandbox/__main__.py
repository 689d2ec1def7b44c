"""Entry point ``python -m services.sandbox``: serve until SIGTERM."""

import asyncio
import sys

from services.sandbox.app import create_app
from services.sandbox.settings import SandboxSettings
from shared.service.main import run_service
from shared.service.server import serve


def main() -> int:
    return run_service("sandbox", SandboxSettings, _serve)


def _serve(settings: SandboxSettings) -> None:
    app = create_app(settings)
    asyncio.run(serve(app, settings, shutdown_timeout=settings.shutdown_seconds))


if __name__ == "__main__":
    sys.exit(main())
