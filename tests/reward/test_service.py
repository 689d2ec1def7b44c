"""The service as a whole: what it opens, it closes."""

from typing import Any

import pytest
from redis import Redis

from services.reward import service as module
from services.reward.sample_log import NoSampleLog
from services.reward.service import RewardService
from services.reward.settings import RewardSettings
from shared.errors import ServiceError
from shared.ledger import connect_async
from shared.ledger.reward_hours import reward_sessions
from tests.conftest import RedisServer
from tests.reward.servers import eventually, quick, served


class Log(NoSampleLog):
    closed = False

    def close(self) -> None:
        self.closed = True


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
    log, settings = Log(), RewardSettings(redis_url=own_redis_server.url)
    with Redis.from_url(own_redis_server.url) as redis:
        before = len(redis.client_list())
        with pytest.raises(ServiceError, match="full"):
            async with RewardService.opened(settings, redis, config=quick(), sample_log=log):
                raise AssertionError("it cannot be used")
        assert len(opened) == 1
        await eventually(lambda: len(redis.client_list()) == before)
    assert log.closed


async def test_what_was_answered_is_recorded_by_hour_when_the_service_ends(
    redis: Redis, redis_server: RedisServer
) -> None:
    tests = {"inputs": [""], "outputs": [""]}
    async with served(redis, redis_server.url) as found:
        for completion in ("a", "b"):
            status, _ = await found.score(completion=completion, ground_truth=tests, deadline=0.1)
            assert status == 504  # nobody judges
        session = found.service.session.run
    [recorded] = reward_sessions(redis)
    assert recorded.session == session
    [totals] = recorded.hours.values()
    assert (totals.statuses, totals.accepted, totals.scored) == ({"api_error": 2}, 0, 0)
