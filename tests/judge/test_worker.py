"""Life cycle of RQ's jobs in a judge process, and the verdicts of one worker."""

import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from redis import Redis
from rq import SimpleWorker
from rq.job import JobStatus
from rq.suspension import resume, suspend

from shared.config import load_config
from shared.ledger import Ledger
from shared.ledger.queue import BATCH, JudgeQueue, live_workers
from shared.schemas import Generation, SampleId, Verdict
from shared.statuses import FinalStatus
from tests import waiting
from tests.conftest import RedisServer
from tests.judge.worker_process import GO, WAITING
from tests.judge.workers import Worker
from tests.runner.generators import refused_url
from tests.shared.ledgers import RUN, enter, generation, problem, verdict

NAMES = [f"p{n:02}" for n in range(BATCH)]


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    ledger = Ledger(redis, RUN)
    enter(ledger, [problem(name) for name in NAMES])
    return ledger


def record(ledger: Ledger, *names: str, completion: str = "print(1)") -> list[SampleId]:
    samples = [SampleId("d1", name) for name in names]
    ledger.record(*(generation(sample, completion) for sample in samples))
    return samples


def record_except_first(ledger: Ledger, first: str) -> list[SampleId]:
    """Record a batch whose first completion is another one."""
    samples = [SampleId("d1", name) for name in NAMES[:BATCH]]
    texts = [first] + ["print(1)"] * (BATCH - 1)
    pairs = zip(samples, texts, strict=True)
    ledger.record(*(generation(sample, text) for sample, text in pairs))
    return samples


until = partial(waiting.until, "what the judges do", every=0.02)


def in_hand(redis: Redis) -> list[object]:
    """What RQ has of jobs that are executed."""
    started = JudgeQueue("judge", redis).started_job_registry.get_job_ids(cleanup=False)
    left = ("rq:execution:*", "rq:executions:*", "rq:worker:*:executions")
    return [*started, *(key for pattern in left for key in redis.keys(pattern))]


def rq_workers(redis: Redis) -> list[SimpleWorker]:
    return SimpleWorker.all(queue=JudgeQueue("judge", redis))


# In the test's process


async def test_a_batch_that_is_delivered_twice_is_judged_once(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    judged: list[SampleId] = []

    async def judge(given: Generation) -> Verdict:
        judged.append(given.sample)
        return verdict(given)

    samples = record(ledger, *NAMES[:5])
    [job] = ledger.queue.get_job_ids()
    ledger.record_verdict(verdict(generation(samples[0])))
    ledger.queue.push_job_id(job)
    async with Worker(redis_server.url, "w", judge=judge) as worker:
        await worker.judge_all()
        ledger.enqueue([(sample, generation(sample).completion_sha256) for sample in samples])
        await worker.judge_all()
    assert sorted(judged) == samples[1:]
    assert (ledger.meta().verdicts_written, ledger.meta().duplicate_verdicts) == (5, 0)


async def test_rewards_go_first(ledger: Ledger, redis: Redis, redis_server: RedisServer) -> None:
    judged: list[str] = []

    async def judge(given: Generation) -> Verdict:
        judged.append(given.problem_id)
        return verdict(given)

    record(ledger, *NAMES)
    rewards = Ledger(redis, "reward/0123456789abcdef")
    rewards.record(generation("reward"))
    async with Worker(redis_server.url, "w", judge=judge) as worker:
        await worker.judge_all()
    assert judged[0] == "reward" and len(judged) == len(NAMES) + 1


# Processes


@contextmanager
def judging(
    url: str,
    name: str = "w",
    concurrency: int = 16,
    lease_ttl: int = 5,
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


def test_a_completion_that_raises_fails_alone(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    raising, *others = record_except_first(ledger, "raise")
    with judging(redis_server.url):
        until(lambda: ledger.judged() == set(others))
        until(lambda: ledger.queue.failed_job_registry.get_job_ids())
        until(lambda: not in_hand(redis))
    [name] = ledger.queue.failed_job_registry.get_job_ids()
    failed = ledger.queue.fetch_job(name)
    assert failed is not None
    assert (failed.get_status(), failed.retries_left) == (JobStatus.FAILED, 0)
    assert "ZeroDivisionError: as the test wants it" in (failed.latest_result().exc_string or "")
    ledger.requeue_lost(ledger.requeue_lost(set()))
    assert ledger.verdict(raising).detail == "judge_worker_lost"


def test_sigterm_finishes_the_jobs_in_hand_and_takes_no_other(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    """It judges five completions at once, and takes few batches in advance: a worker has one."""
    samples = [SampleId("d1", NAMES[0], index) for index in range(8 * BATCH)]
    ledger.record(*(generation(sample, "wait") for sample in samples))
    with judging(redis_server.url, concurrency=5) as process:
        until(lambda: counted(redis, WAITING) == 5)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        left = ledger.queue.count
        assert 3 <= left <= 7
        assert process.poll() is None
        redis.set(GO, 1)
        assert process.wait(60) == 0
    assert ledger.judged() == set(samples[: -left * BATCH])
    assert ledger.queue.count == left
    assert live_workers(redis) == []
    assert in_hand(redis) == []


def test_slow_completions_leave_room_for_others(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    """A judge of four has three that wait, each in a batch of its own."""
    for name in NAMES[:3]:
        slow = generation(SampleId("d1", name), "wait")
        others = [generation(SampleId("d1", name, index)) for index in range(1, BATCH)]
        ledger.record(slow, *others)
    more = record(ledger, *NAMES[3:])
    with judging(redis_server.url, concurrency=4):
        until(lambda: counted(redis, WAITING) == 3)
        until(lambda: len(ledger.judged()) == 3 * (BATCH - 1) + len(more))
        assert counted(redis, WAITING) == 3


@pytest.mark.parametrize("drain", [0.5, 1000.0])
def test_after_the_drain_limit_or_a_second_signal_rq_retries_the_jobs(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, drain: float
) -> None:
    samples = record(ledger, *NAMES, completion="wait")
    with judging(redis_server.url, drain=drain) as process:
        until(lambda: counted(redis, WAITING) == len(NAMES))
        process.send_signal(signal.SIGTERM)
        if drain > 1:
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert ledger.judged() == set()
    assert ledger.queue.count == 1
    assert in_hand(redis) == []
    redis.set(GO, 1)
    with judging(redis_server.url, "next"):
        until(lambda: ledger.judged() == set(samples))
    assert ledger.meta().jobs_redelivered == len(NAMES)


def test_sigterm_ends_a_judge_whose_redis_is_down(own_redis_server: RedisServer) -> None:
    redis = Redis.from_url(own_redis_server.url)
    ledger = Ledger(redis, RUN)
    enter(ledger, [problem(name) for name in NAMES])
    record(ledger, *NAMES, completion="hold")
    with judging(own_redis_server.url, drain=0.5) as process:
        until(lambda: counted(redis, WAITING) == len(NAMES))
        until(lambda: redis.info("clients")["blocked_clients"])  # another worker waits for a job
        own_redis_server.kill()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_rq_recovers_the_jobs_of_a_killed_judge(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    samples = record(ledger, *NAMES, completion="wait")
    with judging(redis_server.url, lease_ttl=1):
        until(lambda: counted(redis, WAITING) == len(NAMES))
    redis.set(GO, 1)
    with judging(redis_server.url, "next", lease_ttl=4):  # a busy machine lets shorter ones expire
        until(lambda: ledger.judged() == set(samples))
        until(lambda: not redis.keys("rq:job:*"))
        until(lambda: {worker.name.split(".")[0] for worker in rq_workers(redis)} == {"next"})
        assert sum(worker.successful_job_count for worker in rq_workers(redis)) == 1
        assert sum(worker.failed_job_count for worker in rq_workers(redis)) == 0
    assert {v.final_status for v in ledger.verdicts(samples)} == {FinalStatus.SUCCESS}
    assert (ledger.meta().jobs_redelivered, ledger.meta().verdicts_written) == (16, 16)


def test_the_job_of_a_killed_judge_goes_before_those_that_wait(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    record(ledger, *NAMES[:8], completion="wait")
    with judging(redis_server.url, lease_ttl=1):
        until(lambda: counted(redis, WAITING) == 8)
    started = ledger.queue.started_job_registry
    [lost] = started.get_job_ids(cleanup=False)
    record(ledger, *NAMES[8:])
    until(lambda: started.cleanup() or len(ledger.queue) == 2)
    assert ledger.queue.get_job_ids()[0] == lost


def test_leases_of_a_long_job_are_renewed(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    record(ledger, *NAMES, completion="wait")
    with judging(redis_server.url, lease_ttl=2) as process:
        until(lambda: counted(redis, WAITING) == len(NAMES))
        time.sleep(4)
        assert counted(redis, WAITING) == len(NAMES)
        assert len(live_workers(redis)) == 16
        assert ledger.queue.oldest_lease() > 3
        process.send_signal(signal.SIGSTOP)
        until(lambda: not live_workers(redis))
        redis.delete("rq:workers", "rq:workers:judge")
        process.send_signal(signal.SIGCONT)
        until(lambda: len(live_workers(redis)) == 16)


def test_suspended_workers_take_no_job_and_sigterm_ends_an_idle_judge(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    with judging(redis_server.url) as process:
        until(lambda: len(live_workers(redis)) == 16)
        assert {worker.name for worker in rq_workers(redis)} == {f"w.{n}" for n in range(16)}
        suspend(redis)
        until(lambda: {worker.get_state() for worker in rq_workers(redis)} == {"suspended"})
        samples = record(ledger, *NAMES)
        time.sleep(1.5)
        assert ledger.judged() == set()
        resume(redis)
        until(lambda: ledger.judged() == set(samples))
        until(lambda: redis.info("clients")["blocked_clients"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert rq_workers(redis) == []


@pytest.mark.nightly
def test_a_completion_that_kills_its_judge_takes_no_other_with_it(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    samples = poison, *others = record_except_first(ledger, "kill")
    suspects: set[SampleId] = set()
    judges = 0
    while len(ledger.judged()) < len(samples):
        judges += 1
        assert judges < 12
        with judging(redis_server.url, f"w{judges}", lease_ttl=1) as process:
            while process.poll() is None and len(ledger.judged()) < len(samples):
                suspects = ledger.requeue_lost(suspects)
                time.sleep(0.2)
    verdict = ledger.verdict(poison)
    assert verdict is not None
    assert verdict.detail == "judge_worker_lost"
    assert {v.final_status for v in ledger.verdicts(others)} == {FinalStatus.SUCCESS}


# Verdicts, with a real ledger and a real sandbox


ECHO = "```python\nprint(input())\n```"
P1 = SampleId("d1", "p1")


@pytest.fixture
def new_ledger(redis: Redis) -> Ledger:
    return Ledger(redis, RUN)


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
    new_ledger: Ledger, worker: Worker, redis: Redis, sandbox_url: str
) -> None:
    begin(new_ledger, sandbox_url)
    new_ledger.record(generation(completion=ECHO))
    await worker.judge_all()
    found = new_ledger.verdict(P1)
    assert found is not None
    assert (found.final_status, found.accepted, found.attempts) == (FinalStatus.SUCCESS, True, 1)
    assert found.completion_sha256 == generation(completion=ECHO).completion_sha256
    assert found.worker == "worker-1"
    assert found.judged_at is not None
    assert redis.keys("rq:job:*") == []


async def test_a_replaced_completion_is_not_judged(
    new_ledger: Ledger, worker: Worker, redis: Redis
) -> None:
    begin(new_ledger, refused_url())
    new_ledger.record(generation(completion="new"))
    new_ledger.queue.empty()
    put_job(new_ledger, redis, "old")
    await worker.judge_all()
    assert new_ledger.verdict(P1) is None
    assert redis.keys("rq:job:*") == []
    assert worker.errors == []


async def test_a_job_of_a_deleted_run_is_passed_over(
    new_ledger: Ledger, worker: Worker, redis: Redis
) -> None:
    begin(new_ledger, refused_url())
    new_ledger.record(generation(completion=ECHO))
    new_ledger.delete()
    put_job(new_ledger, redis, ECHO)
    await worker.judge_all()
    assert worker.errors == []
    assert new_ledger.verdict(P1) is None
    assert new_ledger.meta() is None


async def test_without_a_sandbox_the_sample_is_ours(new_ledger: Ledger, worker: Worker) -> None:
    url = refused_url()
    begin(new_ledger, url)
    new_ledger.record(generation(completion=ECHO))
    await worker.judge_all()
    found = new_ledger.verdict(P1)
    assert found is not None
    assert found.final_status is FinalStatus.API_ERROR
    assert (found.detail or "").startswith("sandbox: ClientConnectorError")
    assert found.attempts == len(found.infra_failures) == 1
