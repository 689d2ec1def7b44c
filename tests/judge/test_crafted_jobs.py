"""Jobs that somebody else wrote to Redis: never run, moved aside, and others go on."""

import json
import pickle
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis
from rq import Callback, Queue, Retry, Webhook
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry
from rq.serializers import JSONSerializer

from services.judge.settings import JudgeSettings
from services.judge.worker import JudgeWorker
from shared.ledger import Ledger, connect_async, job_id, keys
from shared.ledger.calls import READ_FIELDS, Flaw, JobCall, RefusedJobError
from shared.ledger.jobs import HeldJobs, WorkerJobs
from shared.ledger.packing import pack
from shared.ledger.pipelined import PipelinedRedis
from shared.schemas import Generation, SampleId, Verdict
from tests.conftest import RedisServer
from tests.judge.workers import Worker
from tests.shared.ledgers import RUN, enter, generation, problem, verdict

RAN = "tests:ran"
SAMPLE, OTHER = SampleId("d1", "p00"), SampleId("d1", "p01")
ID = job_id(RUN, SAMPLE, generation(SAMPLE).completion_sha256)
OTHER_ID = job_id(RUN, OTHER, generation(OTHER).completion_sha256)
SHA = generation(SAMPLE).completion_sha256


def intrude(*_args: object) -> None:
    """Code of an intruder, that is, code of the image that a job names and nobody means to run."""
    connection = next((one.connection for one in _args if isinstance(one, Job)), None)
    if connection is not None:
        connection.set(RAN, 1)


class Pickled:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("raise SystemExit('unpickled')",)


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    ledger = Ledger(redis, RUN)
    enter(ledger, [problem(name) for name in ("p00", "p01")])
    ledger.record(generation(SAMPLE))
    ledger.record(generation(OTHER))
    return ledger


def call(
    function: object = keys.JUDGE_FUNCTION,
    arguments: object = (RUN, SAMPLE.key, SHA),
    instance: object = None,
    keywords: object = None,
) -> bytes:
    document = [function, instance, arguments, {} if keywords is None else keywords]
    return zlib.compress(json.dumps(document).encode())


BOMB = zlib.compress(b"[" + b" " * (64 << 20) + b"]", 9)[:60_000]

FIELD_FLAWS: list[tuple[dict[str, bytes | str | int], Flaw]] = [
    ({"failure_callback_name": f"{__name__}.intrude"}, Flaw.CALLBACK),
    ({"success_callback_name": "os.system"}, Flaw.CALLBACK),
    ({"stopped_callback_name": "builtins.exec"}, Flaw.CALLBACK),
    ({"group_id": "g"}, Flaw.CALLBACK),
    ({"webhooks": '[{"url": "http://127.0.0.1:9/"}]'}, Flaw.FIELDS),
    ({"dependency_ids": '["x"]'}, Flaw.FIELDS),
    ({"failure_callback_timeout": 60}, Flaw.FIELDS),
    ({"repeats_left": 5, "repeat_intervals": "[0]"}, Flaw.FIELDS),
    ({"rate_limit_key": "k", "rate_limit_concurrency": 1}, Flaw.FIELDS),
    ({"result": pickle.dumps(Pickled())}, Flaw.FIELDS),
    ({"ttl": 1}, Flaw.FIELDS),
    ({"description": "x" * 70_000}, Flaw.FIELDS),
    ({"data": b"x" * 70_000}, Flaw.FIELDS),
    ({"origin": "default"}, Flaw.SETTINGS),
    ({"timeout": 5}, Flaw.SETTINGS),
    ({"result_ttl": 500}, Flaw.SETTINGS),
    ({"failure_ttl": "-1"}, Flaw.SETTINGS),
    ({"retries_left": 1000}, Flaw.SETTINGS),
    ({"retries_left": "٣"}, Flaw.SETTINGS),
    ({"retry_intervals": "[86400]"}, Flaw.SETTINGS),
    ({"meta": pickle.dumps(Pickled())}, Flaw.SETTINGS),
    ({"meta": '{"losses": 1, "x": 2}'}, Flaw.SETTINGS),
    ({"meta": '{"losses": true}'}, Flaw.SETTINGS),
    ({"meta": "[" * 60_000}, Flaw.SETTINGS),
    ({"data": call("os.system", ["touch /tmp/x"])}, Flaw.CALL),
    ({"data": call("services.judge.jobs.judge_sample ")}, Flaw.CALL),
    ({"data": call(["services.judge.jobs.judge_sample"])}, Flaw.CALL),
    ({"data": call(instance={"a": 1})}, Flaw.CALL),
    ({"data": call(keywords={"a": 1})}, Flaw.CALL),
    ({"data": call(arguments=[RUN, SAMPLE.key])}, Flaw.CALL),
    ({"data": call(arguments=[RUN, SAMPLE.key, SHA, SHA])}, Flaw.CALL),
    ({"data": call(arguments=[RUN, 7, SHA])}, Flaw.CALL),
    ({"data": call(arguments=[RUN, "d1/p00/00", SHA])}, Flaw.CALL),
    ({"data": call(arguments=[RUN, "d1/p00/-1", SHA])}, Flaw.CALL),
    ({"data": call(arguments=[RUN, "d1/p00", SHA])}, Flaw.CALL),
    ({"data": call(arguments=["../x", SAMPLE.key, SHA])}, Flaw.CALL),
    ({"data": call(arguments=["x" * 600, SAMPLE.key, SHA])}, Flaw.CALL),
    ({"data": call(arguments=[RUN, SAMPLE.key, SHA.upper()])}, Flaw.CALL),
    ({"data": call(arguments=["\ud800", SAMPLE.key, SHA])}, Flaw.CALL),
    ({"data": call(arguments=[RUN, "d1/p\udc80/0", SHA])}, Flaw.CALL),
    ({"data": pickle.dumps(Pickled())}, Flaw.CALL),
    ({"data": zlib.compress(pickle.dumps(Pickled()))}, Flaw.CALL),
    ({"data": zlib.compress(b"[" * 60_000)}, Flaw.CALL),
    ({"data": BOMB}, Flaw.CALL),
    ({"data": b""}, Flaw.CALL),
    ({"data": call(arguments=["run-2", SAMPLE.key, SHA])}, Flaw.MISMATCH),
    ({"data": call(arguments=[RUN, OTHER.key, SHA])}, Flaw.MISMATCH),
    ({"data": call(arguments=[RUN, SAMPLE.key, "0" * 64])}, Flaw.MISMATCH),
]


def notes(redis: Redis) -> list[tuple[str, str]]:
    found = [json.loads(note) for note in redis.lrange(keys.REFUSED, 0, -1)]
    return [(note["job"], note["reason"]) for note in found]


def counted(worker: Worker) -> dict[str, float]:
    (metric,) = (
        found
        for found in worker.metrics.registry.collect()
        if found.name == "plumbline_judge_jobs_refused"
    )
    return {
        sample.labels["flaw"]: sample.value
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.value
    }


async def judge(given: Generation) -> Verdict:
    return verdict(given)


async def work_off(redis_server: RedisServer) -> Worker:
    async with Worker(redis_server.url, "w", judge=judge) as worker:
        await worker.judge_all()
    assert worker.errors == []
    return worker


# Taking


async def test_crafted_jobs_are_moved_aside_and_others_go_on(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    """A job for each flaw, all in one queue."""
    names = [f"p{n:02}" for n in range(2, 2 + len(FIELD_FLAWS))]
    enter(ledger, [problem(name) for name in ("p00", "p01", *names)])
    flaws = {}
    for name, (fields, flaw) in zip(names, FIELD_FLAWS, strict=True):
        sample = SampleId("d1", name)
        ledger.record(generation(sample))
        crafted = job_id(RUN, sample, generation(sample).completion_sha256)
        redis.hset(f"rq:job:{crafted}", mapping=fields)
        flaws[crafted] = flaw
    worker = await work_off(redis_server)
    assert ledger.judged() == {SAMPLE, OTHER}
    assert sorted(notes(redis)) == sorted((job, flaw.value) for job, flaw in flaws.items())
    assert counted(worker) == Counter(flaw.value for flaw in flaws.values())
    left = [f"{key}{job}" for job in flaws for key in ("rq:job:", keys.lease(""))]
    assert [key for key in left if redis.exists(key)] == []
    assert not redis.exists("rq:worker:w:executions")
    assert redis.zcard("rq:wip:judge") == redis.llen("rq:queue:judge") == 0


async def test_the_runner_delivers_the_sample_of_a_refused_job_again(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    redis.hset(f"rq:job:{ID}", "failure_callback_name", "os.system")
    await work_off(redis_server)
    suspects = ledger.requeue_lost(set(), 3)
    assert suspects == {SAMPLE}
    ledger.requeue_lost(suspects, 3)
    await work_off(redis_server)
    assert ledger.judged() == {SAMPLE, OTHER}


@pytest.mark.parametrize(
    "entry",
    [
        b"x", b"", b"\xff\xfe\x00", ID.upper().encode(), f"{ID}:x".encode(), b"9" * 41,
        b"../../x", b"x" * 1_000_000, str(RUN).encode(),
    ],
)  # fmt: skip
async def test_an_entry_that_is_no_id_is_moved_aside(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, entry: bytes
) -> None:
    redis.set(b"rq:job:" + entry[:1000], "kept")
    redis.lpush("rq:queue:judge", entry)
    worker = await work_off(redis_server)
    assert ledger.judged() == {SAMPLE, OTHER}
    assert counted(worker) == {Flaw.ID: 1}
    ((name, _),) = notes(redis)
    assert len(name) <= 80 and name.isascii()
    assert redis.get(b"rq:job:" + entry[:1000]) == b"kept"


@pytest.mark.parametrize("kind", ["set", "rpush", "sadd"])
async def test_a_job_of_another_type_is_moved_aside(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, kind: str
) -> None:
    redis.delete(f"rq:job:{ID}")
    redis.execute_command(kind, f"rq:job:{ID}", "x")
    worker = await work_off(redis_server)
    assert ledger.judged() == {OTHER}
    assert (notes(redis), counted(worker)) == ([(ID, Flaw.TYPE)], {Flaw.TYPE: 1})


@pytest.mark.parametrize(
    "key",
    [
        f"rq:executions:{ID}", f"rq:results:{ID}", f"plumbline:lease:{ID}", keys.REFUSED,
        "rq:wip:judge", "rq:failed:judge", "rq:worker:w", "rq:worker:w:executions",
        "rq:workers:judge",
    ],
)  # fmt: skip
async def test_a_key_of_another_type_costs_no_job(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, key: str
) -> None:
    redis.set(key, "x")
    await work_off(redis_server)
    assert ledger.judged() == {SAMPLE, OTHER}


async def test_only_the_latest_refusals_are_kept(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    redis.lpush("rq:queue:judge", *(f"junk-{n}" for n in range(250)))
    worker = await work_off(redis_server)
    assert ledger.judged() == {SAMPLE, OTHER}
    assert counted(worker) == {Flaw.ID: 250}
    assert len(notes(redis)) == 100


# Failing, and what a worker does every few minutes


def worker_of(redis: Redis, redis_server: RedisServer) -> JudgeWorker:
    worker = JudgeWorker(redis, JudgeSettings(redis_url=redis_server.url), "w2")
    worker.register_birth()
    return worker


def abandoned(redis: Redis, **fields: str | int) -> None:
    """A job whose worker was lost some time ago."""
    redis.lrem("rq:queue:judge", 0, ID)
    redis.hset(f"rq:job:{ID}", mapping={"status": "started", **fields})
    redis.zadd("rq:wip:judge", {f"{ID}:{'0' * 32}": time.time() - 1})


async def test_no_callback_of_an_abandoned_job_is_called(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    abandoned(redis, failure_callback_name=f"{__name__}.intrude")
    worker_of(redis, redis_server).run_maintenance_tasks()
    assert not redis.exists(RAN)
    await work_off(redis_server)
    assert not redis.exists(RAN)
    assert notes(redis) == [(ID, Flaw.CALLBACK)]


def test_no_webhook_of_an_abandoned_job_is_sent(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    with listening() as (url, seen):
        hook = Webhook(url, "failed", method="POST")
        abandoned(redis, retries_left=0, webhooks=json.dumps([hook.to_dict()]))
        worker_of(redis, redis_server).run_maintenance_tasks()
    assert seen == []
    assert notes(redis) == [(ID, Flaw.FIELDS)]


def test_no_dependent_of_an_abandoned_job_is_queued(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    dependent = Queue("other", connection=redis).enqueue(
        intrude, depends_on=Job.fetch(ID, connection=redis, serializer=JSONSerializer)
    )
    abandoned(redis, retries_left=0)
    redis.hset(dependent.key, "allow_dependency_failures", 1)
    worker_of(redis, redis_server).run_maintenance_tasks()
    assert redis.llen("rq:queue:other") == 0


def test_an_abandoned_job_is_queued_again_until_its_retries_end(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    worker = worker_of(redis, redis_server)
    for left in (2, 1, 0):
        abandoned(redis)
        worker.run_maintenance_tasks()
        assert ID.encode() in redis.lrange("rq:queue:judge", 0, -1)
        assert redis.hget(f"rq:job:{ID}", "retries_left") == str(left).encode()
    abandoned(redis)
    worker.run_maintenance_tasks()
    job = Job.fetch(ID, connection=redis, serializer=JSONSerializer)
    assert job.get_status() == JobStatus.FAILED
    assert (job.latest_result() or pytest.fail()).exc_string == "its worker was lost"
    assert FailedJobRegistry(queue=ledger.queue.rq).get_job_ids(cleanup=False) == [ID]
    assert redis.ttl(job.key) > 0


def test_a_job_that_a_worker_holds_is_not_abandoned(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    abandoned(redis)
    redis.set(keys.lease(ID), "another")
    worker_of(redis, redis_server).run_maintenance_tasks()
    assert ID.encode() not in redis.lrange("rq:queue:judge", 0, -1)


def test_maintenance_survives_what_it_finds(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    worker = worker_of(redis, redis_server)
    redis.zadd("rq:wip:judge", {b"\xff": 1, "x:y:z": 1, f"{ID}:x": 1, ":": 1})
    redis.sadd("rq:workers:judge", "plumbline:runs", b"\xff", "rq:worker:gone")
    redis.sadd("rq:groups", "g")
    redis.sadd("rq:group:g", ID)
    worker.run_maintenance_tasks()
    assert redis.zcard("rq:wip:judge") == 0
    assert redis.smembers("rq:workers:judge") == {b"rq:worker:w2"}
    assert redis.exists("plumbline:runs")


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """A server that notes the paths that are requested."""
    seen: list[str] = []

    class Note(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    with HTTPServer(("127.0.0.1", 0), Note) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook", seen
        server.shutdown()


async def test_what_raises_runs_nothing_that_was_added_meanwhile(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    """A job may be changed after it was taken."""
    with listening() as (url, seen):
        hook = Webhook(url, "failed", method="POST")
        crafted = {
            "failure_callback_name": f"{__name__}.intrude",
            "webhooks": json.dumps([hook.to_dict()]),
            "retries_left": 0,
        }

        async def raising(given: Generation) -> Verdict:
            if given.sample == SAMPLE:
                redis.hset(f"rq:job:{ID}", mapping=crafted)
                raise ZeroDivisionError
            return verdict(given)

        worker = worker_of(redis, redis_server)
        async with Worker(redis_server.url, "w2", judge=raising) as loop:
            failed: list[Any] = []
            loop._fail = lambda job, error: failed.append(worker.fail(job, error))  # type: ignore[assignment,method-assign]
            await loop.judge_all()
    assert len(failed) == 1
    assert not redis.exists(RAN)
    assert seen == []
    assert redis.hget(f"rq:job:{ID}", "status") == b"failed"


async def test_a_job_cannot_ask_for_more_retries_than_there_are(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    worker, times = worker_of(redis, redis_server), 0

    async def raising(given: Generation) -> Verdict:
        nonlocal times
        if given.sample == SAMPLE:
            times += 1
            redis.hset(f"rq:job:{ID}", "retries_left", 3 if times > 1 else 10**6)
            if times > 3:
                redis.hset(f"rq:job:{ID}", "retries_left", 0)
            raise ZeroDivisionError
        return verdict(given)

    async with Worker(redis_server.url, "w2", judge=raising) as loop:
        loop._fail = worker.fail  # type: ignore[method-assign]
        await loop.judge_all()
        await loop.judge_all()
    assert times == 4
    assert redis.hget(f"rq:job:{ID}", "status") == b"failed"


async def test_a_job_that_changes_its_type_costs_no_other_job_its_lease(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    held = HeldJobs(redis, "w", lease_ttl=10)
    async with Worker(redis_server.url, "w", judge=judge) as worker:
        taken = await worker._jobs.take(2, idle=True)
    redis.delete(f"rq:job:{ID}", f"rq:executions:{ID}")
    redis.mset({f"rq:job:{ID}": "x", f"rq:executions:{ID}": "x"})
    redis.expire(keys.lease(OTHER_ID), 1)
    assert held.renew(taken.jobs) == set()
    assert redis.pttl(keys.lease(OTHER_ID)) > 5000
    held.give_back()
    assert OTHER_ID.encode() in redis.lrange("rq:queue:judge", 0, -1)


# The queue as runner and aggregator see it


@pytest.mark.parametrize("date", [b"x" * 100_000, b"\xff", b"2020", b""])
def test_the_age_of_a_crafted_job_is_none(ledger: Ledger, redis: Redis, date: bytes) -> None:
    redis.hset(f"rq:job:{ID}", mapping={"enqueued_at": date, "data": BOMB, "status": "strange"})
    assert ledger.queue.oldest_wait() == 0


def test_runner_and_aggregator_see_past_crafted_entries(ledger: Ledger, redis: Redis) -> None:
    redis.lpush("rq:queue:judge", b"\xff", "x" * 1000)
    redis.sadd("rq:workers:judge", b"\xff", "plumbline:runs", "rq:worker:w")
    redis.hset("rq:worker:w", mapping={"pid": "x", "queues": "../x", "birth": "never"})
    redis.zadd("rq:wip:judge", {b"\xff": 1, "x" * 1000: 2, f"{ID}:x": 3})
    redis.set(keys.lease(ID), "w")
    other = job_id(RUN, OTHER, generation(OTHER).completion_sha256)
    assert ledger.queue.waiting() == {ID, other}
    assert ledger.queue.oldest_wait() == ledger.queue.oldest_lease() == 0
    assert ledger.queue.workers() == 1
    assert ledger.queue.count() == 4


@pytest.mark.parametrize("kind", ["set", "sadd"])
def test_a_crafted_job_is_forgotten_like_any(ledger: Ledger, redis: Redis, kind: str) -> None:
    dependent = Queue("other", connection=redis).enqueue(
        intrude,
        depends_on=Job.fetch(ID, connection=redis, serializer=JSONSerializer),
        on_failure=Callback("os.system"),
        retry=Retry(max=3),
    )
    redis.delete(f"rq:job:{ID}")
    redis.execute_command(kind, f"rq:job:{ID}", "x")
    redis.execute_command(kind, f"rq:executions:{ID}", "x")
    ledger.queue.forget([ID])
    assert not redis.exists(f"rq:job:{ID}", f"rq:job:{ID}:dependents")
    assert redis.exists(dependent.key)


# The parser, whatever a hash holds

VALID = {
    "data": call(),
    "origin": b"judge",
    "timeout": b"-1",
    "result_ttl": b"0",
    "failure_ttl": b"604800",
    "retries_left": b"3",
    "retry_intervals": b"[0]",
    "failure_callback_name": b"",
}


def test_the_jobs_of_the_ledger_are_accepted(ledger: Ledger, redis: Redis) -> None:
    for fields in ({}, {"meta": '{"losses": 2}'}, {"retries_left": 0}):
        redis.hset(f"rq:job:{ID}", mapping=fields or {"status": "queued"})
        found = JobCall.parse(ID, redis.hmget(f"rq:job:{ID}", READ_FIELDS))
        assert found == JobCall(RUN, SAMPLE, SHA)


async def test_a_job_that_rq_wrote_is_accepted(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    """As runners of earlier versions did; RQ writes fields that are empty, too."""
    ledger.queue.forget([ID, OTHER_ID])
    job = Job.create(
        keys.JUDGE_FUNCTION,
        args=[RUN, SAMPLE.key, SHA],
        id=ID,
        connection=redis,
        serializer=JSONSerializer,
        timeout=-1,
        result_ttl=0,
        failure_ttl=60,
        origin=keys.JUDGE_QUEUE,
    )
    job.retries_left, job.retry_intervals = 3, [0]
    ledger.queue.rq.enqueue_job(job)
    assert b"" in redis.hvals(f"rq:job:{ID}")
    jobs = WorkerJobs(PipelinedRedis(await connect_async(redis_server.url)), "w", lease_ttl=30)
    (taken,) = (await jobs.take(2, idle=True)).jobs
    assert JobCall.parse(taken.id, taken.values) == JobCall(RUN, SAMPLE, SHA)


_TEXT = st.sampled_from(["", "x", "os.system", RUN, SAMPLE.key, SHA])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)
_DATA = st.builds(lambda document: pack(json.dumps(document)), _JSON) | st.builds(
    call,
    st.sampled_from([keys.JUDGE_FUNCTION, "os.system"]) | _JSON,
    st.lists(st.sampled_from([RUN, SAMPLE.key, SHA]) | _JSON, max_size=4),
    st.none() | _JSON,
    st.just({}) | _JSON,
)


@given(
    st.dictionaries(
        st.sampled_from(READ_FIELDS), st.none() | st.binary(max_size=40) | _DATA, max_size=4
    )
)
def test_whatever_is_stored_is_the_ledgers_call_or_refused(
    changed: dict[str, bytes | None],
) -> None:
    fields: dict[str, bytes | None] = {**VALID, **changed}
    try:
        found = JobCall.parse(ID, [fields.get(name) for name in READ_FIELDS])
    except RefusedJobError:
        return
    assert found == JobCall(RUN, SAMPLE, SHA)
    assert not any(fields.get(f"{kind}_callback_name") for kind in ("success", "failure"))
