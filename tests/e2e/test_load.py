"""Verdicts do not depend on the load of the machine."""

import asyncio
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.judge.permits import SandboxPool
from services.judge.sandbox import SandboxClient
from shared.config import Config, load_config
from shared.ledger import connect_async
from shared.ledger.pipelined import PipelinedRedis
from tests.bench.answers import Answer
from tests.bench.judges import by_method
from tests.conftest import RedisServer
from tests.judge.tasks import stdio
from tests.sandboxes import own_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.nightly, pytest.mark.timeout(600)]

SPINNER = """```python
import time
while time.process_time() < 0.5:
    pass
print(input())
```"""


@contextmanager
def one_core() -> Iterator[None]:
    """For what is started meanwhile."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def burners(count: int) -> Iterator[None]:
    """Processes that want a core each, and have a session's share of the processor."""
    started = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(count)]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.join()


def _spin() -> None:
    os.setsid()
    while True:
        pass


async def judged(sandbox: str, redis: str, answer: Answer, config: Config) -> list[int]:
    """The codes of an answer's cases."""
    connection = await connect_async(redis)
    pool = SandboxPool(PipelinedRedis(connection), [sandbox], "load", max_concurrency=1)
    async with SandboxClient(pool, max_attempts=3, retry_budget=60) as client:
        codes = await by_method(config, client)(answer)
    await pool.close()
    await connection.aclose()
    return list(codes)


def test_a_machine_that_others_use_up_makes_no_time_out(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    # Half a second of the processor's time, of which there is a sixth: three seconds, while the
    # wall-clock limit of a run by itself is two.
    config = load_config(None, ["sandbox.timeout=0.7"])
    answer = Answer(stdio(("1", "1")), SPINNER)
    with one_core(), own_sandbox(tmp_path) as sandbox, burners(5):
        assert asyncio.run(judged(sandbox, redis_server.url, answer, config)) == [1]
