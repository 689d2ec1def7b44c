"""Entry point of the reward service (``python -m services.reward``)."""

import asyncio

from redis import Redis

from services.reward.app import make_app
from services.reward.service import RewardService
from services.reward.settings import RewardSettings
from shared.errors import PlumblineError, ServiceError
from shared.ledger import wait_for_redis
from shared.service.access import Access
from shared.service.health import refuse
from shared.service.logs import configure_logging
from shared.service.server import serve
from shared.service.settings import load_settings


def main() -> int:
    configure_logging("reward")
    try:
        settings = load_settings(RewardSettings)
        configure_logging("reward", settings.log_level)
        redis = wait_for_redis(settings.redis_url, settings.host, settings.port, settings=settings)
        asyncio.run(_serve(settings, redis))
    except PlumblineError as error:
        return refuse("reward", error)
    except OSError as error:
        return refuse("reward", ServiceError(str(error)))
    return 0


async def _serve(settings: RewardSettings, redis: Redis) -> None:
    async with RewardService.opened(settings, redis) as service:
        access = Access(settings.hosts, settings.bearer)
        await serve(make_app(service, redis, access=access), settings, stop=service.stop)


if __name__ == "__main__":
    raise SystemExit(main())
