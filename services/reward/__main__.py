"""Entry point of the reward service (``python -m services.reward``)."""

import asyncio

from redis import Redis

from services.reward.app import make_app
from services.reward.service import RewardService
from services.reward.settings import RewardSettings
from shared.ledger import wait_for_redis
from shared.service.access import Access
from shared.service.processes import run_service
from shared.service.server import serve


def main() -> int:
    return run_service("reward", RewardSettings, _run)


def _run(settings: RewardSettings) -> None:
    redis = wait_for_redis(settings.redis_url, settings.host, settings.port, settings=settings)
    asyncio.run(_serve(settings, redis))


async def _serve(settings: RewardSettings, redis: Redis) -> None:
    async with RewardService.opened(settings, redis) as service:
        access = Access(settings.hosts, settings.bearer)
        await serve(make_app(service, redis, access=access), settings, stop=service.stop)


if __name__ == "__main__":
    raise SystemExit(main())
