"""Entry point of the reward service (``python -m services.reward``)."""

import asyncio
from functools import partial

from redis import Redis

from services.reward.app import make_app
from services.reward.service import RewardService
from services.reward.settings import RewardSettings
from shared.ledger import wait_for_redis
from shared.service.access import Access
from shared.service.processes import run_service, with_watch
from shared.service.server import serve


def main() -> int:
    return run_service("reward", RewardSettings, _run)


def _run(settings: RewardSettings) -> None:
    redis = wait_for_redis(settings.redis_url, settings.host, settings.port, settings=settings)
    asyncio.run(_serve(settings, redis))


async def _serve(settings: RewardSettings, redis: Redis) -> None:
    async with RewardService.opened(settings, redis) as service:
        access = Access(settings.hosts, settings.bearer)
        app = make_app(service, redis, access=access)
        await with_watch(partial(serve, app, settings), lambda: asyncio.shield(service.work))


if __name__ == "__main__":
    raise SystemExit(main())
