from collections.abc import AsyncIterator, Iterator

import pytest

from services.judge.sandbox import SandboxClient
from tests.judge.pools import OpenPool
from tests.sandboxes import own_sandbox


@pytest.fixture(scope="session")
def sandbox_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The sandbox of this repository, as a process of its own."""
    with own_sandbox(tmp_path_factory.mktemp("sandbox")) as url:
        yield url


@pytest.fixture
def pool(sandbox_url: str) -> OpenPool:
    return OpenPool([sandbox_url])


@pytest.fixture
async def sandbox(pool: OpenPool) -> AsyncIterator[SandboxClient]:
    async with SandboxClient(pool, max_attempts=2, retry_budget=30) as client:
        yield client
