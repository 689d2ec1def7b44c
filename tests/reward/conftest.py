from collections.abc import AsyncIterator, Iterator

import pytest
from redis import Redis

from tests.conftest import RedisServer
from tests.reward.servers import Served, judge_process, served
from tests.sandboxes import own_sandbox


@pytest.fixture(scope="session")
def sandbox_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The sandbox of this repository, as a process of its own."""
    with own_sandbox(tmp_path_factory.mktemp("sandbox")) as url:
        yield url


@pytest.fixture(scope="module")
def judge(
    redis_server: RedisServer, sandbox_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A judge worker, for the tests of one file."""
    with judge_process(redis_server.url, sandbox_url, tmp_path_factory.mktemp("judge")):
        yield


@pytest.fixture
async def service(
    judge: None, redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> AsyncIterator[Served]:
    """A service with a judge; files without one have a fixture of their own."""
    async with served(redis, redis_server.url, sandbox_urls=sandbox_url) as running:
        yield running
