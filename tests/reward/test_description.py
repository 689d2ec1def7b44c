"""The description of the API has every route and no other."""

import json

from redis import Redis

from services.reward.app import make_app
from shared.service.access import Access
from tests.conftest import RedisServer
from tests.reward.servers import served
from tests.shared.test_service_openapi import described
from tests.shared.test_service_openapi import served as routes_of


async def test_every_route_is_described(redis: Redis, redis_server: RedisServer) -> None:
    async with served(redis, redis_server.url) as service:
        async with service.client.get(f"{service.url}/openapi.json") as response:
            description = json.loads(await response.read())
        app = make_app(service.service, redis, access=Access())
    assert described(description) == routes_of(app)
