"""Entry point of the generator: serves the backend that the environment selects."""

import asyncio
import sys

from services.generator.settings import GeneratorSettings
from shared.errors import PlumblineError, ServiceError
from shared.service.health import refuse
from shared.service.logs import configure_logging
from shared.service.settings import load_settings


def main() -> int:
    configure_logging("generator")
    try:
        settings = load_settings(GeneratorSettings)
        configure_logging("generator", settings.log_level)
        _serve(settings)
    except PlumblineError as error:
        return refuse("generator", error)
    except OSError as error:
        return refuse("generator", ServiceError(str(error)))
    return 0


def _serve(settings: GeneratorSettings) -> None:
    """Serve a backend; only its own modules are imported, because the demo starts the small one."""
    if settings.backend == "replay":
        from services.generator.backends.replay.app import serve_replay

        asyncio.run(serve_replay(settings))
        return
    import uvloop

    from services.generator.backends.verl.backend import serve_verl

    uvloop.run(serve_verl(settings))  # uvloop reduces the router's time per request


if __name__ == "__main__":
    sys.exit(main())
