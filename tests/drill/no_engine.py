"""Generator stub: our router with engines that never start."""

import os

from aiohttp import web

from services.generator.router.app import Router
from services.generator.router.replica import Replica
from services.generator.settings import GeneratorSettings
from shared.errors import ServiceError
from shared.service.logs import configure_logging
from shared.service.settings import load_settings


class NoEngine:
    async def start(self, rank: int, generation: int) -> Replica:
        raise ServiceError(f"engine {rank} ended while it loaded its weights ({generation})")


if __name__ == "__main__":
    configure_logging("generator")
    router = Router(load_settings(GeneratorSettings), NoEngine(), 1)
    web.run_app(router.application(), host="127.0.0.1", port=int(os.environ["PORT"]))
