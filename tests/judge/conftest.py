import os
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator

import pytest

from services.cli.embedded.child import Child, wait_until
from services.judge.sandbox import SandboxClient
from tests.judge.pools import OpenPool


@pytest.fixture(scope="session")
def sandbox_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The sandbox of this repository, as a process of its own."""
    folder = tmp_path_factory.mktemp("sandbox")
    port_file = folder / "port"
    environment = {**os.environ, "HOST": "127.0.0.1", "PORT": "0"}
    environment["PLUMBLINE_PORT_FILE"] = str(port_file)
    command = [sys.executable, "-m", "services.sandbox"]
    child = Child("sandbox", command, folder / "log", environment)
    child.start()
    try:
        wait_until(port_file.exists, child)
        url = f"http://127.0.0.1:{port_file.read_text().strip()}"

        def ready() -> bool:
            try:
                with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
                    return bool(answer.status == 200)
            except urllib.error.URLError:
                return False

        wait_until(ready, child)
        yield url
    finally:
        child.stop(10)


@pytest.fixture
def pool(sandbox_url: str) -> OpenPool:
    return OpenPool([sandbox_url])


@pytest.fixture
async def sandbox(pool: OpenPool) -> AsyncIterator[SandboxClient]:
    async with SandboxClient(pool, max_attempts=2, retry_budget=30) as client:
        yield client
