"""Jobs that somebody else wrote to Redis: nothing that they name runs, and others go on."""

import json
import pickle
import zlib

import pytest
from redis import Redis
from rq import Callback, Queue
from rq.job import Job
from rq.serializers import JSONSerializer

from shared.ledger import Ledger, job_id, keys
from shared.ledger.queue import JobCall
from shared.schemas import Generation, SampleId, Verdict
from tests.conftest import RedisServer
from tests.judge.workers import Worker
from tests.shared.ledgers import RUN, enter, generation, problem, verdict

RAN = "tests:ran"
SAMPLES = [SampleId("d1", f"p{number:02}") for number in range(20)]
OTHER = SampleId("d1", "other")
SHA = generation(SAMPLES[0]).completion_sha256


def intrude(*_args: object) -> None:
    """Code of an intruder, that is, code of the image that a job names and nobody means to run."""
    connection = next((one.connection for one in _args if isinstance(one, Job)), None)
    if connection is not None:
        connection.set(RAN, 1)


class Pickled:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("raise SystemExit('unpickled')",)


def call(*arguments: object, function: object = keys.JUDGE_FUNCTION) -> bytes:
    return zlib.compress(json.dumps([function, None, arguments, {}]).encode())


BOMB = zlib.compress(b"[" + b" " * (64 << 20) + b"]", 9)
NO_CALLS = [
    b"", b"x" * 70_000, BOMB, zlib.compress(b"[" * 60_000), zlib.compress(b"{}"),
    pickle.dumps(Pickled()), zlib.compress(pickle.dumps(Pickled())),
    call(), call(RUN, SAMPLES[0].key), call(RUN, "d1/p00", SHA), call(RUN, 7, SHA),
]  # fmt: skip


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    ledger = Ledger(redis, RUN)
    enter(ledger, [problem(one.problem_id) for one in (*SAMPLES, OTHER)])
    return ledger


async def work_off(redis_server: RedisServer) -> None:
    async def judge(given: Generation) -> Verdict:
        return verdict(given)

    async with Worker(redis_server.url, "w", judge=judge) as worker:
        await worker.judge_all()
    assert worker.errors == []


async def test_jobs_without_a_call_are_dropped_and_delivered_again(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    for sample, data in zip(SAMPLES, NO_CALLS, strict=False):
        ledger.record(generation(sample))
        job = job_id(RUN, sample, generation(sample).completion_sha256)
        redis.hset(f"rq:job:{job}", "data", data)
    ledger.record(generation(OTHER))
    await work_off(redis_server)
    assert ledger.judged() == {OTHER}
    assert redis.keys("rq:job:*") == redis.keys("plumbline:lease:*") == []
    assert redis.zcard("rq:wip:judge") == redis.llen("rq:queue:judge") == 0
    suspects = ledger.requeue_lost(set(), 3)
    ledger.requeue_lost(suspects, 3)
    await work_off(redis_server)
    assert ledger.judged() == {*SAMPLES[: len(NO_CALLS)], OTHER}


async def test_nothing_that_a_job_names_is_called(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    """Its function, callbacks, group and dependents."""
    ledger.record(generation(SAMPLES[0]))
    job = job_id(RUN, SAMPLES[0], generation(SAMPLES[0]).completion_sha256)
    names = ("success_callback_name", "failure_callback_name", "stopped_callback_name")
    redis.hset(f"rq:job:{job}", mapping=dict.fromkeys(names, f"{__name__}.intrude"))
    redis.hset(f"rq:job:{job}", "result", pickle.dumps(Pickled()))
    queue = Queue("judge", connection=redis, serializer=JSONSerializer)
    done = Callback(f"{__name__}.intrude")
    queue.enqueue(f"{__name__}.intrude", on_success=done, on_failure=done, job_id="f" * 40)
    await work_off(redis_server)
    assert ledger.judged() == {SAMPLES[0]}
    assert not redis.exists(RAN)
    assert redis.llen("rq:queue:judge") == 0


@pytest.mark.parametrize("entry", [b"x", b"", b"\xff\xfe\x00", b"../../x", b"x" * 1_000_000])
async def test_an_entry_that_is_no_job_is_skipped(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, entry: bytes
) -> None:
    redis.set(b"rq:job:" + entry[:1000], "kept")
    redis.set(f"rq:job:{'a' * 40}", "of another type")
    redis.lpush("rq:queue:judge", entry, "a" * 40)
    ledger.record(generation(OTHER))
    await work_off(redis_server)
    assert ledger.judged() == {OTHER}
    assert redis.get(b"rq:job:" + entry[:1000]) == b"kept"


def test_the_jobs_of_the_ledger_are_read(ledger: Ledger, redis: Redis) -> None:
    ledger.record(generation(SAMPLES[0]))
    data = redis.hget(f"rq:job:{job_id(RUN, SAMPLES[0], SHA)}", "data")
    assert JobCall.parse(data) == JobCall(RUN, SAMPLES[0], SHA)
