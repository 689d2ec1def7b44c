"""Processing of jobs by one worker, with a real ledger and a real sandbox."""

from collections.abc import AsyncIterator

import pytest
from redis import Redis

from shared.config import load_config
from shared.ledger import Ledger
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.judge.workers import Worker
from tests.runner.generators import refused_url
from tests.shared.ledgers import enter, generation, problem

ECHO = "```python\nprint(input())\n```"
P1 = SampleId("d1", "p1")


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    return Ledger(redis, "run-1")


@pytest.fixture
async def worker(redis: Redis, redis_server: RedisServer) -> AsyncIterator[Worker]:
    async with Worker(redis_server.url, "worker-1") as worker:
        yield worker


def put_job(ledger: Ledger, redis: Redis, completion: str) -> None:
    """Enqueue the job of a completion, whatever the ledger has."""
    pipe = redis.pipeline()
    pipe.multi()
    sha256 = generation(completion=completion).completion_sha256
    ledger.queue.put(pipe, ledger.run, [(P1, sha256)])
    pipe.execute()


def begin(ledger: Ledger, sandbox_url: str, *more: str) -> None:
    """What a runner writes when a session begins."""
    overrides = [f"sandbox.url={sandbox_url}/run_code", "judge.retry_budget=0", *more]
    enter(ledger, [problem("p1"), problem("p2")], config=load_config(None, overrides))


async def test_a_job_becomes_a_verdict(
    ledger: Ledger, worker: Worker, redis: Redis, sandbox_url: str
) -> None:
    begin(ledger, sandbox_url)
    ledger.record(generation(completion=ECHO))
    await worker.judge_all()
    found = ledger.verdict(P1)
    assert found is not None
    assert (found.final_status, found.accepted, found.attempts) == (FinalStatus.SUCCESS, True, 1)
    assert found.completion_sha256 == generation(completion=ECHO).completion_sha256
    assert found.worker == "worker-1"
    assert found.judged_at is not None
    assert redis.keys("rq:job:*") == []


async def test_a_replaced_completion_is_not_judged(
    ledger: Ledger, worker: Worker, redis: Redis
) -> None:
    begin(ledger, refused_url())
    ledger.record(generation(completion="new"))
    ledger.queue.empty()
    put_job(ledger, redis, "old")
    await worker.judge_all()
    assert ledger.verdict(P1) is None
    assert redis.keys("rq:job:*") == []
    assert worker.errors == []


async def test_a_job_of_a_deleted_run_is_passed_over(
    ledger: Ledger, worker: Worker, redis: Redis
) -> None:
    begin(ledger, refused_url())
    ledger.record(generation(completion=ECHO))
    ledger.delete()
    put_job(ledger, redis, ECHO)
    await worker.judge_all()
    assert worker.errors == []
    assert ledger.verdict(P1) is None
    assert ledger.meta() is None


async def test_without_a_sandbox_the_sample_is_ours(ledger: Ledger, worker: Worker) -> None:
    url = refused_url()
    begin(ledger, url)
    ledger.record(generation(completion=ECHO))
    await worker.judge_all()
    found = ledger.verdict(P1)
    assert found is not None
    assert found.final_status is FinalStatus.API_ERROR
    assert (found.detail or "").startswith("sandbox: ClientConnectorError")
    assert found.attempts == len(found.infra_failures) == 1
