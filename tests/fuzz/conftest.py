from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis

from shared.schemas import SampleId
from tests.aggregator.runs import begin, judge
from tests.conftest import RedisServer
from tests.fuzz.servers import MODULES, Server, environment, served, unharmed
from tests.shared.ledgers import problem


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.fuzz)


@pytest.fixture(scope="session")
def started(
    redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Server]]:
    """All servers, each with its own Redis database, in which there is a run."""
    folder = tmp_path_factory.mktemp("servers")

    def start(number: int, name: str) -> Server:
        url = f"{redis_server.url.rpartition('/')[0]}/{number + 1}"
        with Redis.from_url(url) as redis:
            redis.flushdb()
            judge(begin(redis, [problem("p1")]), SampleId("d1", "p1"), judged_at=5.0)
        (folder / name).mkdir()
        variables = environment(name, url, folder / name / "index")
        return stack.enter_context(served(name, folder / name, **variables))

    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        yield list(threads.map(start, range(len(MODULES)), MODULES))


@pytest.fixture
def servers(started: list[Server]) -> Iterator[list[Server]]:
    """Servers that the test must leave alive, with quiet logs and little memory."""
    with ExitStack() as stack:
        for server in started:
            stack.enter_context(unharmed(server))
        yield started
