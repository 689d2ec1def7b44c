"""The service as a whole: what it opens, it closes."""

from typing import Any

import pytest
from redis import Redis

from services.reward import service as module
from services.reward.service import RewardService
from services.reward.settings import RewardSettings
from shared.errors import ServiceError
from shared.ledger import connect_async
from tests.conftest import RedisServer
from tests.reward.servers import eventually, quick


async def test_a_service_that_cannot_connect_leaves_nothing_open(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    async def connect(url: str) -> Any:
        if opened:
            raise ServiceError("Redis is full")
        opened.append(await connect_async(url))
        await opened[0].ping()
        return opened[0]

    monkeypatch.setattr(module, "connect_async", connect)
    settings = RewardSettings(redis_url=own_redis_server.url)
    with Redis.from_url(own_redis_server.url) as redis:
        before = len(redis.client_list())
        with pytest.raises(ServiceError, match="full"):
            async with RewardService.opened(settings, redis, config=quick()):
                raise AssertionError("it cannot be used")
        assert len(opened) == 1
        await eventually(lambda: len(redis.client_list()) == before)
