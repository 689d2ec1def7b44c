"""Generator stub, run in the generator's image: our router with engines that never start.

Real engines are too heavy for a test; supervision and metrics are those of the real generator.
"""

from aiohttp import web

from services.generator.router.app import Router
from services.generator.router.replica import Replica
from services.generator.settings import GeneratorSettings
from shared.errors import ServiceError
from shared.service.settings import load_settings


class NoEngine:
    async def start(self, rank: int, generation: int) -> Replica:
        raise ServiceError(f"engine {rank} ended while it loaded its weights ({generation})")


if __name__ == "__main__":
    router = Router(load_settings(GeneratorSettings), NoEngine(), 1)
    web.run_app(router.application(), port=8000)
