import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.judge.sandbox import Attempts, SandboxClient
from shared.harness.sandbox_api import RunCodeRequest
from tests.hostile.machine import SLOTS, Machine
from tests.judge.conftest import sandbox_url as own_sandbox_url  # noqa: F401
from tests.judge.pools import OpenPool
from tests.sandbox.conftest import temp_root as temp_root

FOREIGN = os.environ.get("SANDBOX_URL", "")


@pytest.fixture(scope="session")
def url(request: pytest.FixtureRequest, temp_root: Path) -> Iterator[str]:
    """The sandbox of SANDBOX_URL; else this repository's, with a folder for its files alone."""
    if FOREIGN:
        yield FOREIGN.removesuffix("/run_code").rstrip("/")
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLUMBLINE_SANDBOX_TEMP_ROOT", str(temp_root))
        patch.setenv("PLUMBLINE_SANDBOX_CONCURRENCY", str(SLOTS))
        yield request.getfixturevalue("own_sandbox_url")


@pytest.fixture
async def sandbox(url: str) -> AsyncIterator[SandboxClient]:
    async with SandboxClient(OpenPool([url]), max_attempts=2, retry_budget=30) as client:
        yield client


async def run(sandbox: SandboxClient, script: str) -> str:
    request = RunCodeRequest(code=script, language="bash")
    response = await sandbox.run_code(request, Attempts())
    assert response.run_result is not None
    return response.run_result.stdout or ""


@pytest.fixture
async def machine(sandbox: SandboxClient, temp_root: Path) -> Machine | None:
    """What programs leave on this machine; None for a sandbox elsewhere."""
    if FOREIGN:
        return None
    user = int(await run(sandbox, "id -u"))
    return Machine(temp_root, user, frozenset(Machine(temp_root, user).files()))


@pytest.fixture
async def isolated(sandbox: SandboxClient) -> bool:
    """Whether a program harms nobody else: it has a process namespace, or one was asked for it."""
    if FOREIGN:
        return os.environ.get("SANDBOX_HOSTILE") == "1"
    return int(await run(sandbox, "ls -d /proc/[0-9]* | wc -l")) < 20
