"""Life cycle of jobs in a worker that judges several at once: leases, RQ's records, shutdown."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis import Redis
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry, StartedJobRegistry
from rq.serializers import JSONSerializer
from rq.worker import SimpleWorker, WorkerStatus

from services.judge.jobs import JudgedSample
from services.judge.settings import JudgeSettings
from services.judge.worker import JudgeWorker, LeaseKeeper
from shared.ledger import JudgeQueue, Ledger, connect, connect_async, job_id
from shared.ledger import keys as ledger_keys
from shared.ledger.jobs import HeldJobs, JobInput, WorkerJobs
from shared.ledger.pipelined import PipelinedRedis
from shared.schemas import Generation, SampleId, Verdict
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.judge.worker_process import GO, TOGETHER, WAITING
from tests.judge.workers import StandInJudge, Worker
from tests.shared.ledgers import RUN, enter, generation, problem, verdict

NAMES = [f"p{n:02}" for n in range(16)]


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    ledger = Ledger(redis, RUN)
    enter(ledger, [problem(name) for name in NAMES])
    return ledger


def record(ledger: Ledger, *names: str, completion: str = "print(1)") -> list[SampleId]:
    samples = [SampleId("d1", name) for name in names]
    for sample in samples:
        ledger.record(generation(sample, completion))
    return samples


def id_of(sample: SampleId, completion: str = "print(1)") -> str:
    return job_id(RUN, sample, generation(sample, completion).completion_sha256)


def until(true: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def nothing_in_hand(redis: Redis) -> None:
    """What a job had is released after its result is stored, with a command of its own."""
    until(lambda: not in_hand(redis))


def in_hand(redis: Redis) -> list[object]:
    started = StartedJobRegistry(queue=JudgeQueue(redis).rq).get_job_ids(cleanup=False)
    left = ("*:lease:*", "rq:execution:*", "rq:executions:*", "rq:worker:*:executions", "*:woken:*")
    return [*started, *(key for pattern in left for key in redis.keys(pattern))]


# What RQ sees


async def test_rq_sees_a_job_as_its_own_worker_would_leave_it(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    seen: dict[str, object] = {}
    worker = JudgeWorker(redis, JudgeSettings(redis_url=redis_server.url), "w")
    worker.register_birth()

    async def judge(given: Generation) -> Verdict:
        job = Job.fetch(id_of(given.sample), connection=redis, serializer=JSONSerializer)
        (rq,) = SimpleWorker.all(queue=JudgeQueue(redis).rq)
        (execution,) = rq.get_current_executions()
        seen.update(
            status=job.get_status(),
            worker=job.worker_name,
            started=StartedJobRegistry(queue=JudgeQueue(redis).rq).get_job_ids() == [job.id],
            executed=execution.job_id == job.id and execution.id == job.get_executions()[0].id,
            state=rq.get_state(),
            expires=redis.ttl(job.key),
            lease=redis.get(ledger_keys.lease(job.id)),
        )
        return verdict(given)

    (sample,) = record(ledger, "p00")
    async with Worker(redis_server.url, "w", judge=judge) as loop:
        await loop.judge_all()
    assert loop.errors == []
    assert seen == {
        "status": JobStatus.STARTED,
        "worker": "w",
        "started": True,
        "executed": True,
        "state": WorkerStatus.BUSY,
        "expires": -1,
        "lease": b"w",
    }
    (rq,) = SimpleWorker.all(queue=JudgeQueue(redis).rq)
    assert (rq.get_state(), rq.successful_job_count) == (WorkerStatus.IDLE, 1)
    assert not Job.exists(id_of(sample), connection=redis)
    nothing_in_hand(redis)


async def test_a_job_that_raises_fails_alone(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    raising = record(ledger, "p00", completion="raise")
    others = record(ledger, *NAMES[1:])
    with judging(redis_server.url):
        until(lambda: len(ledger.judged()) == len(others))
        until(lambda: FailedJobRegistry(queue=ledger.queue.rq).get_job_ids())
        nothing_in_hand(redis)
    assert ledger.judged() == set(others)
    job = Job.fetch(id_of(*raising, "raise"), connection=redis, serializer=JSONSerializer)
    assert (job.get_status(), job.retries_left) == (JobStatus.FAILED, 0)
    assert "ZeroDivisionError: as the test wants it" in (job.latest_result().exc_string or "")


async def test_a_problem_that_is_forgotten_during_the_read_is_read_again(
    ledger: Ledger, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others that are read in the same round trip may take its place in memory."""
    (sample,) = record(ledger, "p00")
    known = iter([True, False])
    found: list[JobInput] = []

    async def judge(_self: StandInJudge, given: JobInput, completion: Generation) -> JudgedSample:
        found.append(given)
        return JudgedSample(verdict(completion))

    monkeypatch.setattr(StandInJudge, "knows_problem", lambda _self, _call: next(known))
    monkeypatch.setattr(StandInJudge, "judge", judge)

    async def never(_generation: Generation) -> Verdict:
        raise AssertionError

    async with Worker(redis_server.url, "w", judge=never) as worker:
        await worker.judge_all()
        assert worker.errors == []
    assert ledger.judged() == {sample}
    assert [one.problem is not None for one in found] == [True]


# Leases


@pytest.fixture
async def jobs(redis_server: RedisServer) -> WorkerJobs:
    return WorkerJobs(PipelinedRedis(await connect_async(redis_server.url)), "w", lease_ttl=30)


async def test_every_job_has_a_lease_from_the_queue_on(
    ledger: Ledger, redis: Redis, jobs: WorkerJobs
) -> None:
    samples = record(ledger, *NAMES)
    taken = (await jobs.take(10, idle=True)).jobs
    assert [job.id for job in taken] == [id_of(sample) for sample in samples[:10]]
    assert ledger.queue.leased([id_of(s) for s in samples]) == {job.id for job in taken}
    assert ledger.queue.waiting() == {id_of(sample) for sample in samples[10:]}
    assert ledger.requeue_lost(set(samples), 3) == set()
    assert len((await jobs.take(10, idle=True)).jobs) == 6
    assert (await jobs.take(10, idle=True)).jobs == []


async def test_one_command_renews_all_leases_and_what_rq_expires(
    ledger: Ledger, redis: Redis, jobs: WorkerJobs
) -> None:
    record(ledger, "p00", "p01", "p02")
    own, lost, deleted = (await jobs.take(3, idle=True)).jobs
    started = StartedJobRegistry(queue=ledger.queue.rq)
    mine = (ledger_keys.lease(own.id), f"rq:execution:{own.id}:{own.execution}")
    for key in mine:
        redis.expire(key, 5)
    redis.zadd(started.key, {f"{own.id}:{own.execution}": 1})
    redis.set(ledger_keys.lease(lost.id), "another")
    redis.delete(ledger_keys.lease(deleted.id), f"rq:job:{deleted.id}")
    held = HeldJobs(redis, "w", lease_ttl=30)
    assert held.renew([own, lost, deleted]) == {lost.id}
    assert redis.ttl(mine[0]) > 20
    assert redis.ttl(mine[1]) > 60
    assert redis.zscore(started.key, f"{own.id}:{own.execution}") > time.time() + 60
    assert redis.get(ledger_keys.lease(lost.id)) == b"another"
    assert not redis.exists(f"rq:job:{deleted.id}", ledger_keys.lease(deleted.id))


async def test_a_job_that_is_queued_again_leaves_nothing_of_its_lost_worker(
    ledger: Ledger, redis: Redis, jobs: WorkerJobs
) -> None:
    """Redis' clock was set ahead, which ends all that expires; the registry of jobs does not."""
    record(ledger, "p00", "p01")
    lost, held = (await jobs.take(2, idle=True)).jobs
    redis.delete(
        ledger_keys.lease(lost.id),
        f"rq:execution:{lost.id}:{lost.execution}",
        f"rq:executions:{lost.id}",
    )
    suspects = ledger.requeue_lost(set(), 3)
    assert len(suspects) == 1
    assert ledger.requeue_lost(suspects, 3) == set()
    started = StartedJobRegistry(queue=ledger.queue.rq)
    assert redis.zrange(started.key, 0, -1) == [f"{held.id}:{held.execution}".encode()]


async def test_a_job_that_ended_is_not_renewed(
    ledger: Ledger, redis: Redis, jobs: WorkerJobs
) -> None:
    """The thread that renews may have seen it in hand before it failed."""
    record(ledger, "p00", "p01")
    failed, other = (await jobs.take(2, idle=True)).jobs
    held = HeldJobs(redis, "w", lease_ttl=30)
    assert held.fail(failed, "as the test wants it")
    assert held.renew([failed, other]) == set()
    assert not redis.exists(ledger_keys.lease(failed.id), f"rq:executions:{failed.id}")
    assert redis.get(ledger_keys.lease(other.id)) == b"w"


@pytest.mark.nightly
def test_what_woke_a_killed_worker_is_forgotten_with_it(ledger: Ledger, redis: Redis) -> None:
    redis.sadd("rq:workers:judge", "rq:worker:killed", "rq:worker:alive")
    redis.hset("rq:worker:alive", "pid", 1)
    for worker in ("killed", "alive"):
        redis.rpush(ledger_keys.woken(worker), "job")
    HeldJobs(redis, "w", lease_ttl=30).clean()
    assert redis.keys("plumbline:woken:*") == [b"plumbline:woken:alive"]


@pytest.mark.nightly
async def test_a_busy_event_loop_loses_no_lease(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    """The loop stands still until a thread has renewed the lease."""
    renewed = []

    async def judge(given: Generation) -> Verdict:
        lease = ledger_keys.lease(id_of(given.sample))
        redis.expire(lease, 5)
        until(lambda: redis.ttl(lease) > 20)
        renewed.append(given.sample)
        return verdict(given)

    (sample,) = record(ledger, "p00")
    rq = JudgeWorker(redis, JudgeSettings(redis_url=redis_server.url), "w")
    rq.register_birth()
    async with Worker(redis_server.url, "w", judge=judge, lease_ttl=30) as worker:
        running = asyncio.create_task(worker.loop.run())
        keeper = LeaseKeeper(rq, HeldJobs(redis, "w", lease_ttl=30), worker.loop, every=0.05)
        keeper.start()
        while not ledger.judged():
            await asyncio.sleep(0.01)
        worker.loop.stop()
        await running
        keeper.stop()
        keeper.join()
    assert renewed == [sample]


async def test_jobs_of_a_reply_that_was_lost_are_taken_again(
    ledger: Ledger, redis: Redis, jobs: WorkerJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline whose connection broke is sent again, with the same execution ids."""
    record(ledger, *NAMES[:4])
    sent: list[list[object]] = []
    pipeline = PipelinedRedis._pipeline

    async def twice(self: PipelinedRedis, commands: object) -> list[object]:
        sent.append(await pipeline(self, commands))
        return await pipeline(self, commands)

    await jobs.stop_waiting()  # the server learns the script
    monkeypatch.setattr(PipelinedRedis, "_pipeline", twice)
    taken = (await jobs.take(2, idle=True)).jobs
    lost = [
        (job.decode(), execution.decode(), data) for job, execution, (data, *_) in sent[0][0][1:]
    ]
    assert lost == [(job.id, job.execution, job.data) for job in taken]
    assert ledger.queue.rq.count == 2


async def test_a_job_that_arrives_as_a_worker_stops_goes_back(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, jobs: WorkerJobs
) -> None:
    client = await connect_async(redis_server.url)
    waiting = asyncio.create_task(jobs.wait(client, 20))
    until_blocked = redis.info
    while until_blocked("clients")["blocked_clients"] == 0:
        await asyncio.sleep(0.01)
    (sample,) = record(ledger, "p00")
    await waiting
    assert ledger.queue.waiting() == set()
    await jobs.stop_waiting()
    assert ledger.queue.waiting() == {id_of(sample)}
    await jobs.wait(client, 20)
    assert [job.id for job in (await jobs.take(1, idle=True)).jobs] == [id_of(sample)]
    await client.aclose()


# Processes


@contextmanager
def judging(
    url: str,
    name: str = "w",
    concurrency: int = 16,
    lease_ttl: float = 5.0,
    drain: float = 1000.0,
) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [url, name, str(concurrency), str(lease_ttl), str(drain)]
    process = subprocess.Popen([sys.executable, "-m", "tests.judge.worker_process", *arguments])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def counted(redis: Redis, key: str) -> int:
    return int(redis.get(key) or 0)


def test_sigterm_finishes_the_jobs_in_hand_and_takes_no_other(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    samples = record(ledger, *NAMES, completion="wait")
    with judging(redis_server.url, concurrency=5) as process:
        until(lambda: counted(redis, WAITING) == 5)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None
        redis.set(GO, 1)
        assert process.wait(60) == 0
    assert ledger.judged() == set(samples[:5])
    assert ledger.queue.rq.get_job_ids() == [id_of(s, "wait") for s in samples[5:]]
    assert SimpleWorker.all(queue=ledger.queue.rq) == []
    nothing_in_hand(redis)


def test_sigterm_ends_an_idle_worker_at_once(redis: Redis, redis_server: RedisServer) -> None:
    with judging(redis_server.url) as process:
        until(lambda: SimpleWorker.all(queue=JudgeQueue(redis).rq))
        until(lambda: redis.info("clients")["blocked_clients"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert SimpleWorker.all(queue=JudgeQueue(redis).rq) == []


def test_a_second_signal_returns_the_jobs_to_the_queue(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    samples = record(ledger, *NAMES, completion="wait")
    with judging(redis_server.url, concurrency=5) as process:
        until(lambda: counted(redis, WAITING) == 5)
        process.send_signal(signal.SIGTERM)
        time.sleep(1.5)  # RQ ignores a second signal within a second
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert ledger.judged() == set()
    assert ledger.queue.waiting() == {id_of(sample, "wait") for sample in samples}
    nothing_in_hand(redis)
    redis.set(GO, 1)
    with judging(redis_server.url, "next"):
        until(lambda: ledger.judged() == set(samples))
    assert ledger.meta().jobs_redelivered == 0


def test_after_the_drain_limit_the_jobs_return_to_the_queue(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    samples = record(ledger, *NAMES, completion="wait")
    with judging(redis_server.url, concurrency=5, drain=0.5) as process:
        until(lambda: counted(redis, WAITING) == 5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert ledger.judged() == set()
    assert ledger.queue.waiting() == {id_of(sample, "wait") for sample in samples}
    nothing_in_hand(redis)


def test_a_killed_worker_loses_nothing(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    samples = record(ledger, *NAMES, completion="wait")
    with judging(redis_server.url, lease_ttl=1.0):
        until(lambda: counted(redis, WAITING) == 16)
    redis.set(GO, 1)
    suspects: set[SampleId] = set()
    with judging(redis_server.url, "next"):
        while len(ledger.judged()) < 16:
            suspects = ledger.requeue_lost(suspects, 3)
            time.sleep(0.2)
    assert {v.final_status for v in ledger.verdicts(samples)} == {FinalStatus.SUCCESS}
    assert ledger.meta().jobs_redelivered == 16
    assert ledger.meta().verdicts_written == 16
    redis.delete("rq:worker:w:executions")  # the dead worker's own, which expires
    nothing_in_hand(redis)


def test_a_killed_worker_is_soon_not_counted(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    record(ledger, *NAMES, completion="wait")
    with judging(redis_server.url, lease_ttl=1.0) as process:
        until(lambda: counted(redis, WAITING) == 16)
        time.sleep(4)  # longer than its registration lasts: a busy worker renews it
        assert ledger.queue.workers() == 1
        process.kill()
        process.wait()
        until(lambda: ledger.queue.workers() == 0, seconds=10)


def test_a_worker_that_was_forgotten_registers_again(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    with judging(redis_server.url) as process:
        until(lambda: 0 < redis.ttl("rq:worker:w") <= 30)  # RQ registers it for longer at first
        process.send_signal(signal.SIGSTOP)
        redis.delete("rq:worker:w", "rq:workers", "rq:workers:judge")
        process.send_signal(signal.SIGCONT)
        until(lambda: ledger.queue.workers() == 1, seconds=10)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert ledger.queue.workers() == 0


def test_a_completion_that_kills_its_worker_does_not_take_its_neighbours_with_it(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    """Only its first worker has other jobs in hand."""
    names = NAMES[:6]
    (poison,) = record(ledger, names[2], completion="kill")
    others = record(ledger, *names[:2], *names[3:], completion="pause")
    suspects: set[SampleId] = set()
    workers = 0
    while len(ledger.judged()) < 6:
        workers += 1
        assert workers <= 6
        with judging(redis_server.url, f"w{workers}", lease_ttl=1.0) as process:
            while process.poll() is None and len(ledger.judged()) < 6:
                suspects = ledger.requeue_lost(suspects, 3)
                time.sleep(0.2)
    found = ledger.verdict(poison)
    assert found is not None
    assert found.detail == "judge_worker_lost"
    assert {v.final_status for v in ledger.verdicts(others)} == {FinalStatus.SUCCESS}
    assert [int(count) for count in redis.lrange(TOGETHER, 0, -1)] == [6, 1, 1, 1]
    assert ledger.meta().jobs_redelivered == 6 + 2  # each once, and the one that kills


async def test_a_suspect_is_taken_alone_by_an_idle_worker(
    ledger: Ledger, redis: Redis, jobs: WorkerJobs
) -> None:
    samples = record(ledger, *NAMES[:4])
    suspect = samples[1]
    ledger.queue.rq.empty()
    for sample in samples:
        pipe = redis.pipeline()
        pipe.multi()
        sha = generation(sample).completion_sha256
        ledger.queue.put(pipe, RUN, sample, sha, losses=int(sample == suspect))
        pipe.execute()

    async def take(*, idle: bool) -> tuple[list[str], bool]:
        taken = await jobs.take(16, idle=idle)
        assert [job.suspect for job in taken.jobs] == [
            job.id == id_of(suspect) for job in taken.jobs
        ]
        return [job.id for job in taken.jobs], taken.blocked

    first, second, *rest = map(id_of, samples)
    assert await take(idle=True) == ([first], True)
    assert await take(idle=False) == ([], True)
    assert ledger.queue.rq.get_job_ids() == [second, *rest]
    assert await take(idle=True) == ([second], False)
    assert await take(idle=False) == (rest, False)
    assert await take(idle=True) == ([], False)


@pytest.mark.nightly
def test_a_worker_notices_a_redis_whose_machine_vanished(redis_server: RedisServer) -> None:
    """RQ would wait seven minutes for a reply."""
    client = connect(redis_server.url)
    limit = client.get_connection_kwargs()["socket_timeout"]
    JudgeWorker(client, JudgeSettings(redis_url=redis_server.url), "w")
    assert client.get_connection_kwargs()["socket_timeout"] == limit
    client.close()
