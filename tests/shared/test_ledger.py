import signal
import subprocess
import sys
import threading

import pytest
from redis import Redis
from rq import SimpleWorker
from rq.serializers import JSONSerializer

from shared.errors import OutputError
from shared.ledger import Ledger, list_runs
from shared.ledger.ledger import MAX_REDELIVERIES
from shared.ledger.queue import BATCH, Batch, JudgeJob, JudgeQueue
from shared.run_record import RunMeta, RunState
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.shared.ledgers import RUN, enter, generation, problem, put_meta, verdict

P1 = SampleId("d1", "p1")


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    return Ledger(redis, RUN)


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    return redis_server.url


def queued(ledger: Ledger) -> list[Batch]:
    return [job.batch for job in ledger.queue.get_jobs()]


def job_of(ledger: Ledger, completion: str = "print(1)", sample: SampleId = P1) -> Batch:
    return Batch(ledger.run, ((sample, generation(sample, completion).completion_sha256),))


def left_behind(redis: Redis) -> set[bytes]:
    """All keys but the ledger's version and those that RQ keeps of its queues and workers."""
    of_all = (b"plumbline:version", b"rq:queues", b"rq:worker", b"rq:clean")
    return {key for key in redis.keys("*") if not key.startswith(of_all)}


def fail_all_jobs(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """As RQ does with jobs that raise, until their retries are used up."""

    def fail(_job: JudgeJob) -> None:
        raise OSError

    monkeypatch.setattr(JudgeJob, "judge", staticmethod(fail), raising=False)
    monkeypatch.setattr(SimpleWorker, "_install_signal_handlers", lambda _worker: None)
    worker(redis).work(burst=True, logging_level="CRITICAL")


def worker(redis: Redis) -> SimpleWorker:
    classes = {"job_class": JudgeJob, "queue_class": JudgeQueue, "serializer": JSONSerializer}
    return SimpleWorker([JudgeQueue("judge", redis)], connection=redis, **classes)


KILLED = """
import os, signal, sys
from redis import Redis
from tests.shared.test_ledger import JudgeJob, worker

JudgeJob.judge = staticmethod(lambda job: os.kill(os.getpid(), signal.SIGKILL))
worker(Redis.from_url(sys.argv[1])).work(burst=True)
"""


def lose_all_jobs(ledger: Ledger) -> None:
    """As workers do that take their jobs and are killed at once."""
    ledger.queue.empty()


# The run


def test_opens_a_run_and_finds_its_problems(ledger: Ledger, redis: Redis) -> None:
    problems = [problem(f"p {i}/ä", prompt="x" * i) for i in range(450)]
    enter(ledger, problems, name="n", data_files=["a"])
    assert list_runs(redis) == [RUN]
    assert ledger.meta() == RunMeta(name="n", data_files=["a"], sessions=1)
    assert ledger.state() is RunState.RUNNING
    assert [ledger.problem("d1", p.problem_id) for p in problems] == problems
    assert ledger.problem("d2", "p 1/ä") is None


def test_opening_again_keeps_what_is_there_and_adds_what_is_new(ledger: Ledger) -> None:
    enter(ledger, [problem("p1", prompt="old")], started_at=1, model="m", state="judged")
    enter(ledger, [problem("p1", prompt="new"), problem("p2")], started_at=2, seed=3)
    assert ledger.meta() == RunMeta(started_at=1, seed=3, model="m", sessions=2)
    assert ledger.problem("d1", "p1") == problem("p1", prompt="old")
    assert ledger.problem("d1", "p2") == problem("p2")


def test_meta_data_of_another_version_are_refused_by_name(ledger: Ledger) -> None:
    enter(ledger)
    put_meta(ledger, config={"judge": {"mystery": 1}})
    with pytest.raises(OutputError, match=r"run-1 .*config\.judge\.mystery"):
        ledger.meta()
    put_meta(ledger, state="paused", config={})
    with pytest.raises(OutputError, match="state"):
        ledger.meta()


# Completions


def test_a_completion_comes_with_its_job(ledger: Ledger) -> None:
    completion = generation(
        completion="print('ä\u2028')", output_tokens=7, gen_time=0.5, requests=2
    )
    ledger.record(completion)
    assert ledger.completion(P1) == completion
    assert ledger.completed() == {P1: completion.completion_sha256}
    assert queued(ledger) == [Batch(RUN, ((P1, completion.completion_sha256),))]
    meta = ledger.meta()
    assert (meta.completions_written, meta.generation_requests) == (1, 2)
    assert ledger.judged() == set()


def test_completions_are_queued_in_batches(ledger: Ledger, redis: Redis) -> None:
    given = [generation(f"p{n}", "x" * 100_000) for n in range(BATCH + 1)]
    ledger.record(*given)
    named = tuple((one.sample, one.completion_sha256) for one in given)
    assert queued(ledger) == [Batch(RUN, named[:BATCH]), Batch(RUN, named[BATCH:])]
    [name, _] = ledger.queue.get_job_ids()
    assert sum(map(len, redis.hgetall(f"rq:job:{name}").values())) < 2000


def test_completion_and_job_are_one_transaction(ledger: Ledger, redis: Redis) -> None:
    """Redis itself tells what it executed between MULTI and EXEC."""
    with redis.monitor() as monitor:
        address = redis.client_info()["addr"]  # what an earlier test left may use the server, too
        ledger.record(generation())
        redis.echo("end")
        seen = []
        for command in monitor.listen():
            words = command["command"].split()
            if f"{command['client_address']}:{command['client_port']}" != address:
                continue
            if words[0] == "ECHO":
                break
            seen.append(words)
    names = [words[0] for words in seen if words[0] not in ("CLIENT", "AUTH", "HELLO", "SELECT")]
    inside = names[names.index("MULTI") + 1 : names.index("EXEC")]
    assert names.count("MULTI") == names.count("EXEC") == 1
    assert {"HSET", "HDEL", "RPUSH"} <= set(inside)
    writes = {"HSET", "HDEL", "RPUSH", "LPUSH", "HINCRBY", "SADD", "ZADD", "DEL"}
    assert not writes & set(names[names.index("EXEC") :])
    assert not writes & set(names[: names.index("MULTI")])


def test_the_same_completion_recorded_again_keeps_its_verdict(ledger: Ledger) -> None:
    """A transaction whose answer was lost arrives twice, maybe after its job was done."""
    ledger.record(generation())
    lose_all_jobs(ledger)
    ledger.record_verdict(verdict(generation()))
    ledger.record(generation())
    assert ledger.verdict(P1) == verdict(generation())
    assert queued(ledger) == []


def test_another_completion_takes_the_verdict_away_and_is_queued(ledger: Ledger) -> None:
    ledger.record(generation(completion="old"))
    lose_all_jobs(ledger)
    assert ledger.record_verdict(verdict(generation(completion="old")))
    ledger.record(generation(completion="new"))
    assert ledger.completion(P1) == generation(completion="new")
    assert ledger.verdict(P1) is None
    assert ledger.judged() == set()
    assert queued(ledger) == [job_of(ledger, "new")]


def test_a_failed_generation_has_a_verdict_and_no_job(ledger: Ledger) -> None:
    completion = generation(completion="", error="http_500")
    ledger.record(completion)
    verdict = ledger.verdict(P1)
    assert verdict is not None
    assert (verdict.final_status, verdict.detail) == (FinalStatus.API_ERROR, "http_500")
    assert queued(ledger) == []
    assert [event.status for event in ledger.events()] == [FinalStatus.API_ERROR]


# Verdicts


def test_the_first_verdict_wins_and_a_second_is_counted(ledger: Ledger) -> None:
    ledger.record(generation())
    first = verdict(generation())
    assert ledger.record_verdict(first) is True
    assert ledger.record_verdict(verdict(generation(), FinalStatus.TIMEOUT)) is False
    assert ledger.verdict(P1) == first
    assert len(ledger.events()) == 1
    assert ledger.meta().duplicate_verdicts == 1
    assert ledger.meta().verdicts_written == 1


def test_the_same_verdict_again_is_a_repeated_request_and_no_duplicate(ledger: Ledger) -> None:
    ledger.record(generation())
    assert ledger.record_verdict(verdict(generation())) is True
    assert ledger.record_verdict(verdict(generation())) is False
    assert len(ledger.events()) == 1
    assert ledger.meta().duplicate_verdicts == 0


def test_of_many_verdicts_at_once_one_is_written(ledger: Ledger) -> None:
    ledger.record(generation())
    start = threading.Barrier(8)
    written: list[bool] = []

    def write(number: int) -> None:
        start.wait()
        written.append(ledger.record_verdict(verdict(generation(), worker=f"w{number}")))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(written) == [False] * 7 + [True]
    assert len(ledger.events()) == 1
    assert ledger.meta().duplicate_verdicts == 7


def test_a_verdict_on_a_replaced_completion_is_refused(ledger: Ledger) -> None:
    ledger.record(generation(completion="old"))
    ledger.record(generation(completion="new"))
    assert ledger.record_verdict(verdict(generation(completion="old"))) is False
    assert ledger.verdict(P1) is None
    assert ledger.events() == []
    assert ledger.record_verdict(verdict(generation(completion="new"))) is True


# The stream


def test_events_come_in_the_order_of_the_verdicts(ledger: Ledger) -> None:
    names = ["p3", "p1", "p2"]
    for name in names:
        ledger.record(generation(name))
        status = FinalStatus.SUCCESS if name == "p1" else FinalStatus.WRONG_ANSWER
        ledger.record_verdict(verdict(generation(name), status))
    events = ledger.events()
    assert [(e.sample.problem_id, e.status, e.accepted) for e in events] == [
        ("p3", FinalStatus.WRONG_ANSWER, False),
        ("p1", FinalStatus.SUCCESS, True),
        ("p2", FinalStatus.WRONG_ANSWER, False),
    ]
    assert ledger.events(events[0].entry) == events[1:]
    assert ledger.events(events[-1].entry) == []
    assert ledger.last_event() == events[-1].entry


# Lost jobs


def test_a_vanished_job_is_queued_again_at_the_second_look(ledger: Ledger) -> None:
    ledger.record(generation())
    lose_all_jobs(ledger)
    suspects = ledger.requeue_lost(set())
    assert suspects == {P1}
    assert queued(ledger) == []
    assert ledger.requeue_lost(suspects) == set()
    assert queued(ledger) == [job_of(ledger)]
    assert ledger.meta().jobs_redelivered == 1


def test_a_completion_whose_jobs_leave_no_verdict_is_given_up(ledger: Ledger) -> None:
    ledger.record(generation())
    for _ in range(MAX_REDELIVERIES):
        lose_all_jobs(ledger)
        assert ledger.requeue_lost({P1}) == set()
        assert queued(ledger) == [job_of(ledger)]
    lose_all_jobs(ledger)
    ledger.requeue_lost({P1})
    assert queued(ledger) == []
    assert ledger.verdict(P1).detail == "judge_worker_lost"


def test_a_suspect_that_was_judged_meanwhile_is_not_queued(ledger: Ledger) -> None:
    ledger.record(generation())
    lose_all_jobs(ledger)
    suspects = ledger.requeue_lost(set())
    ledger.record_verdict(verdict(generation()))
    assert ledger.requeue_lost(suspects) == set()
    assert queued(ledger) == []


def test_a_batch_that_failed_is_split_and_a_completion_that_failed_alone_is_given_up(
    ledger: Ledger, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [generation(f"p{n}") for n in range(3)]
    ledger.record(*given)
    assert ledger.record_verdict(verdict(given[0]))
    rest = {one.sample for one in given[1:]}

    fail_all_jobs(redis, monkeypatch)
    assert ledger.requeue_lost(ledger.requeue_lost(set())) == set()
    assert queued(ledger) == [job_of(ledger, sample=sample) for sample in sorted(rest)]
    assert ledger.meta().jobs_redelivered == 2
    assert not ledger.queue.failed_job_registry.get_job_ids()

    fail_all_jobs(redis, monkeypatch)
    assert ledger.requeue_lost(rest) == set()
    assert queued(ledger) == []
    assert {ledger.verdict(sample).detail for sample in rest} == {"judge_worker_lost"}
    assert {ledger.verdict(sample).judged for sample in rest} == {False}
    ledger.rejudge([(one.sample, one.completion_sha256) for one in given])
    assert ledger.judged() == set()
    assert queued(ledger) == [Batch(RUN, tuple((g.sample, g.completion_sha256) for g in given))]


# Deleting


def test_deleting_leaves_nothing_behind(ledger: Ledger, redis: Redis) -> None:
    other = Ledger(redis, "run-2")
    for each in (ledger, other):
        enter(each, [problem()], name=each.run)
        for name in ("p1", "p2", "p3"):
            each.record(generation(name))
        each.record_verdict(verdict(generation("p2")))
        each.requeue_lost({SampleId("d1", "p3")})
    ledger.rejudge([(SampleId("d1", "p2"), generation("p2").completion_sha256)])
    ledger.delete()
    assert list_runs(redis) == ["run-2"]
    assert queued(ledger) == [job_of(other, sample=SampleId("d1", f"p{i}")) for i in (1, 2, 3)]
    assert len(redis.keys("rq:job:*")) == 3
    other.delete()
    assert left_behind(redis) == set()


def test_deleting_takes_jobs_of_killed_workers(
    ledger: Ledger, redis: Redis, redis_url: str
) -> None:
    ledger.record(generation())
    killed = subprocess.run([sys.executable, "-c", KILLED, redis_url], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert queued(ledger) == []
    assert ledger.requeue_lost({P1}) == set(), "RQ has it"
    ledger.delete()
    # The worker's lease, which expires.
    lease = (b"rq:wip:", b"rq:execution:")
    assert {key for key in left_behind(redis) if not key.startswith(lease)} == set()


# The lock


def test_one_runner_at_a_time(ledger: Ledger) -> None:
    assert ledger.lock("one", 10) is True
    assert ledger.lock("two", 10) is False
    assert ledger.lock("one", 10) is True
    ledger.unlock("two")
    assert ledger.lock("two", 10) is False
    ledger.unlock("one")
    assert ledger.lock("two", 10) is True
