"""Jobs that the ledger did not write: nothing that they name runs, and others go on."""

import json
import pickle
import zlib

import pytest
from redis import Redis
from rq import Callback, Queue, Webhook
from rq.job import Job
from rq.serializers import JSONSerializer

from shared.ledger import Ledger
from shared.schemas import Generation, SampleId, Verdict
from tests.conftest import RedisServer
from tests.judge.workers import Worker
from tests.shared.ledgers import RUN, enter, generation, problem, verdict

RAN = "tests:ran"
P1 = SampleId("d1", "p1")


def intrude(job: Job, *_args: object) -> None:
    """Code of the image that a job names and nobody means to run."""
    job.connection.set(RAN, 1)


class Pickled:
    """Ends the process when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("raise SystemExit('unpickled')",)


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    ledger = Ledger(redis, RUN)
    enter(ledger, [problem("p1")])
    return ledger


async def work_off(redis_server: RedisServer) -> None:
    async def judge(given: Generation) -> Verdict:
        return verdict(given)

    async with Worker(redis_server.url, "w", judge=judge) as worker:
        await worker.judge_all()
        worker.rq.run_maintenance_tasks()
        await worker.judge_all()


@pytest.mark.parametrize("lost", [False, True])
async def test_nothing_that_a_job_names_is_called(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, *, lost: bool
) -> None:
    """As function, callback, webhook, group or result; ``lost``: the worker of the job died."""
    name = f"{__name__}.intrude"
    queue = Queue("judge", connection=redis, serializer=JSONSerializer)
    job = queue.enqueue(
        name,
        on_success=Callback(name),
        on_failure=Callback(name),
        webhooks=[Webhook("http://127.0.0.1:1", "failed")],
        group_id="group",
    )
    redis.hset(job.key, "result", pickle.dumps(Pickled()))
    redis.hset(job.key, "meta", pickle.dumps(Pickled()))
    if lost:
        redis.delete(queue.key)
        redis.hset(job.key, "status", "started")
        redis.zadd("rq:wip:judge", {f"{job.id}:{'0' * 32}": 1})
    ledger.record(generation())
    await work_off(redis_server)
    assert ledger.judged() == {P1}
    assert not redis.exists(RAN)
    assert not lost or redis.zscore("rq:failed:judge", job.id)
    assert redis.llen("rq:queue:judge") == 0


async def test_what_is_no_job_stops_nothing(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    def call(*arguments: object) -> bytes:
        return zlib.compress(json.dumps(["f", None, arguments, {}]).encode())

    calls = [b"", b"x", zlib.compress(b"[" * 60_000), pickle.dumps(Pickled()), call(), call(RUN)]
    calls += [call(RUN, 7), call(RUN, [["d1/p1", "x"]]), call(RUN, [7])]
    for number, data in enumerate(calls):
        redis.hset(f"rq:job:no-job-{number}", mapping={"data": data, "created_at": "never"})
        redis.hset(f"rq:job:no-call-{number}", mapping={"data": data, "retries_left": "1"})
        redis.rpush("rq:queue:judge", f"no-job-{number}", f"no-call-{number}")
    redis.set("rq:job:of-another-type", "x")
    redis.rpush("rq:queue:judge", "of-another-type", "gone")
    redis.zadd("rq:wip:judge", {f"of-another-type:{'0' * 32}": 1, f"no-job-0:{'0' * 32}": 1})
    ledger.record(generation())
    await work_off(redis_server)
    assert ledger.judged() == {P1}
    assert redis.llen("rq:queue:judge") == redis.zcard("rq:wip:judge") == 0
