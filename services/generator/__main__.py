"""Entry point of the generator: serves the backend that the environment selects."""

import asyncio
import sys

from services.generator.settings import GeneratorSettings
from shared.service.processes import run_service
from shared.service.server import serve


def main() -> int:
    return run_service("generator", GeneratorSettings, _serve)


def _serve(settings: GeneratorSettings) -> None:
    """Serve a backend; only its own modules are imported, because the demo starts the small one."""
    if settings.backend == "replay":
        from services.generator.backends.replay import build_app

        asyncio.run(serve(build_app(settings), settings))
        return
    import uvloop

    from services.generator.backends.verl.backend import serve_verl

    uvloop.run(serve_verl(settings))  # uvloop reduces the router's time per request


if __name__ == "__main__":
    sys.exit(main())
