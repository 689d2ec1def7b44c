"""``python -m services.generator``: serve the backend that the environment names."""

import asyncio
import sys
from collections.abc import Callable

from aiohttp import web

from services.generator.backends import replay
from services.generator.settings import GeneratorSettings
from shared.errors import PlumblineError, ServiceError
from shared.http import serve
from shared.logs import configure_logging
from shared.settings import load_settings

BACKENDS: dict[str, Callable[[GeneratorSettings], web.Application]] = {
    "replay": replay.build_app,
}


def main() -> int:
    try:
        settings = load_settings(GeneratorSettings)
        configure_logging("generator", settings.log_level)
        app = BACKENDS[settings.backend](settings)
        asyncio.run(_serve(app, settings))
    except PlumblineError as error:
        print(f"generator: {error}", file=sys.stderr)
        return error.exit_code
    return 0


async def _serve(app: web.Application, settings: GeneratorSettings) -> None:
    try:
        await serve(app, host=settings.host, port=settings.port)
    except OSError as error:
        raise ServiceError(f"cannot serve on {settings.host}:{settings.port}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
