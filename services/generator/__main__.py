"""Entry point of the generator: serves the backend that the environment selects."""

import sys
from collections.abc import Callable, Coroutine

import uvloop

from services.generator.backends.replay.app import serve_replay
from services.generator.backends.verl.backend import serve_verl
from services.generator.settings import GeneratorSettings
from shared.errors import PlumblineError, ServiceError
from shared.service.health import refuse
from shared.service.logs import configure_logging
from shared.service.settings import load_settings

BACKENDS: dict[str, Callable[[GeneratorSettings], Coroutine[object, object, None]]] = {
    "replay": serve_replay,
    "verl": serve_verl,
}


def main() -> int:
    configure_logging("generator")
    try:
        settings = load_settings(GeneratorSettings)
        configure_logging("generator", settings.log_level)
        # uvloop reduces the router's time per request.
        uvloop.run(BACKENDS[settings.backend](settings))
    except PlumblineError as error:
        return refuse("generator", error)
    except OSError as error:
        return refuse("generator", ServiceError(str(error)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
