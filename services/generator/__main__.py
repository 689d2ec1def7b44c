"""Entry point of the generator: serves the backend that the environment selects."""

import sys
from collections.abc import Awaitable, Callable

import uvloop

from services.generator.backends.replay.app import serve_replay
from services.generator.backends.verl.backend import serve_verl
from services.generator.settings import GeneratorSettings
from shared.errors import PlumblineError, ServiceError
from shared.logs import configure_logging
from shared.settings import load_settings
from shared.standby import refuse

BACKENDS: dict[str, Callable[[GeneratorSettings], Awaitable[None]]] = {
    "replay": serve_replay,
    "verl": serve_verl,
}


def main() -> int:
    configure_logging("generator")
    try:
        settings = load_settings(GeneratorSettings)
        configure_logging("generator", settings.log_level)
        # The router needs less time per request than on asyncio's own event loop.
        uvloop.run(_serve(settings))
    except PlumblineError as error:
        return refuse("generator", error)
    return 0


async def _serve(settings: GeneratorSettings) -> None:
    try:
        await BACKENDS[settings.backend](settings)
    except OSError as error:
        raise ServiceError(f"cannot serve on {settings.host}:{settings.port}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
