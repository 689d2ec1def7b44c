"""Rounds of canaries through queue and ledger: sent when due, judged, told apart from samples."""

import json

import pytest
from redis import Redis

from services.aggregator.publish import publish
from services.judge.canaries import CanarySender
from shared.canaries.profile import CanaryProfile
from shared.config import Config
from shared.ledger import CanaryLedger, Ledger
from shared.ledger.keys import RunKeys, canary_run
from shared.plan import make_plan
from shared.run_record import RunState
from shared.schemas import SampleId
from tests.conftest import RedisServer
from tests.judge import faulty_sandbox as faults
from tests.judge.faulty_sandbox import faulty
from tests.judge.workers import Worker
from tests.shared.ledgers import RUN, enter, generation, problem

PROBLEMS = [problem(f"p{n}") for n in range(3)]
PLAN = make_plan(PROBLEMS, lambda _problem: range(1))
PROFILE = "batch python programs"
CONFIG = Config().model_dump_json()


@pytest.fixture
def ledger(redis: Redis, tmp_path) -> Ledger:
    ledger = Ledger(redis, RUN)
    enter(ledger, PROBLEMS, PLAN, output=str(tmp_path), name="n", fingerprint="f")
    for sample in PLAN.samples():
        ledger.record(generation(sample, "```python\nprint(input())\n```"))
    return ledger


async def judge_all(redis_server: RedisServer, *urls: str) -> Worker:
    canaries = CanaryLedger(Redis.from_url(redis_server.url), RUN)
    async with Worker(redis_server.url, "w", sandbox_urls=",".join(urls)) as worker:
        await worker.judge_all()
        while canaries.outstanding():  # a job may be on its way to the worker as the queue is empty
            await worker.judge_all()
        assert worker.errors == []
    return worker


async def test_every_sandbox_gets_a_round_beside_the_samples(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    async with faulty(sandbox_url, faults.NO_MEMORY_LIMIT) as other:
        worker = await judge_all(redis_server, sandbox_url, other)
    record = CanaryLedger(redis, RUN).record()
    assert {one.sandbox for one in record.sandboxes} == {sandbox_url, other}
    assert all((one.rounds, one.sent) == (1, 9) for one in record.sandboxes)
    (line,) = record.distrust
    assert line.startswith(f"sandbox {other}: memory limit not enforced: 1190 MiB allocated")
    assert not record.trusted
    # Nothing of it is in the run's own numbers, nor in those of the process.
    assert ledger.judged() == set(PLAN.samples())
    assert redis.hget(RunKeys(RUN).meta, "verdicts_written") == b"3"
    assert redis.xlen(RunKeys(RUN).events) == 3
    assert worker.metrics.judged == 3
    assert worker.metrics.failure() == line
    counted = worker.metrics.registry.get_sample_value
    labels = {"sandbox": other, "outcome": "wrong"}
    assert counted("plumbline_judge_canaries_total", labels) == 1
    assert counted("plumbline_judge_samples_total", {"status": "success"}) == 3


async def test_an_untrusted_run_says_so_in_its_record(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, sandbox_url: str, tmp_path
) -> None:
    async with faulty(sandbox_url, faults.cut_output(65536)) as other:
        await judge_all(redis_server, other)
    ledger.set_state(RunState.JUDGED)
    assert publish(ledger) is RunState.UNTRUSTED
    assert ledger.state() is RunState.UNTRUSTED
    document = json.loads((tmp_path / "run.json").read_text())
    assert (document["state"], document["complete"]) == ("untrusted", True)
    assert document["statuses"]["success"] == 3
    (found,) = document["canaries"]["sandboxes"]
    assert (found["sandbox"], found["wrong"], found["right"]) == (other, 1, 8)
    assert "output is cut" in found["findings"][0]["text"]
    assert len(document["canaries"]["manifest"]) == 64
    assert "output is cut" in (tmp_path / "report.html").read_text()


async def test_a_trusted_run_has_its_canaries_in_the_record(
    ledger: Ledger, redis_server: RedisServer, sandbox_url: str, tmp_path
) -> None:
    await judge_all(redis_server, sandbox_url)
    ledger.set_state(RunState.JUDGED)
    assert publish(ledger) is RunState.COMPLETE
    (found,) = json.loads((tmp_path / "run.json").read_text())["canaries"]["sandboxes"]
    assert (found["sent"], found["right"], found["findings"]) == (9, 9, [])


async def test_no_canaries_where_they_are_off(
    redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    ledger = Ledger(redis, RUN)
    config = {"judge": {"canaries": {"enabled": False}}}
    enter(ledger, PROBLEMS, PLAN, config=config)
    ledger.record(generation(PLAN.samples()[0], "```python\nprint(input())\n```"))
    await judge_all(redis_server, sandbox_url)
    assert CanaryLedger(redis, RUN).record().sandboxes == []
    assert redis.keys("plumbline:canaries:*") == []


async def test_a_sandbox_that_is_away_is_not_wrong(redis: Redis, redis_server: RedisServer) -> None:
    ledger = Ledger(redis, RUN)
    config = {"judge": {"retry_budget": 0.1, "max_attempts": 1}}
    enter(ledger, PROBLEMS, PLAN, config=config)
    ledger.record(generation(PLAN.samples()[0], "```python\nprint(input())\n```"))
    worker = await judge_all(redis_server, "http://127.0.0.1:9")
    record = CanaryLedger(redis, RUN).record()
    (found,) = record.sandboxes
    assert record.trusted
    assert (found.right, found.wrong, found.unjudged) == (0, 0, 9)
    assert worker.metrics.failure() is None


def test_a_round_is_sent_once_until_the_next_is_due(redis: Redis) -> None:
    canaries = CanaryLedger(redis, RUN)
    assert canaries.send("http://a", PROFILE, CONFIG, every=60)
    assert not canaries.send("http://a", PROFILE, CONFIG, every=60)
    assert canaries.send("http://b", PROFILE, CONFIG, every=60)
    assert canaries.send("http://a", "batch python functions", CONFIG, every=60)
    assert canaries.send("http://a", PROFILE, CONFIG, every=0)
    assert canaries.outstanding() == 4
    rounds = Ledger(redis, canary_run(RUN)).completed()
    assert {one for one in rounds if one.problem_id == PROFILE} == {
        SampleId("http://a", PROFILE, 0),
        SampleId("http://a", PROFILE, 1),
        SampleId("http://b", PROFILE, 0),
    }


def test_canaries_go_before_the_samples_that_wait(ledger: Ledger, redis: Redis) -> None:
    CanaryLedger(redis, RUN).send("http://a", PROFILE, CONFIG, every=60)
    first, *_ = ledger.queue.rq.get_jobs()
    assert first.args[0] == canary_run(RUN)
    assert {job.func_name for job in ledger.queue.rq.get_jobs()} == {first.func_name}


def test_a_deleted_run_leaves_nothing_of_its_canaries(ledger: Ledger, redis: Redis) -> None:
    CanaryLedger.of(ledger).send("http://a", PROFILE, CONFIG, every=60)
    ledger.delete()
    assert redis.keys("plumbline:*") == [b"plumbline:version"]
    assert ledger.queue.waiting() == set()


def test_a_round_whose_worker_is_lost_is_delivered_again(redis: Redis) -> None:
    canaries = CanaryLedger(redis, RUN)
    canaries.send("http://a", PROFILE, CONFIG, every=60)
    redis.delete("rq:queue:judge")
    suspects = canaries.requeue_lost(set(), 1)
    assert len(suspects) == 1
    assert canaries.requeue_lost(suspects, 1) == set()
    assert len(Ledger(redis, RUN).queue.waiting()) == 1
    redis.delete("rq:queue:judge")
    canaries.requeue_lost(canaries.requeue_lost(set(), 1), 1)
    assert canaries.outstanding() == 0
    assert canaries.record().lost == 1


async def test_judges_ask_redis_seldom(redis: Redis, redis_server: RedisServer) -> None:
    sender = CanarySender(redis_server.url, ask_every=3600)
    profile = CanaryProfile.parse(PROFILE)
    for _ in range(3):
        await sender.send(RUN, ["http://a"], profile, CONFIG, 3600)
    java = CanaryProfile("submit", "java", functions=False)
    await sender.send(RUN, ["http://a"], java, CONFIG, 3600)
    sender.close()
    assert CanaryLedger(redis, RUN).outstanding() == 1


@pytest.mark.parametrize(
    "stored",
    [b"x", b"\xff", b"7", b"[1]", b"[NaN, 0]", b'["1", 0]', b"[1e400, 0]", b"[0, 1e300]",
     b"[0, NaN]", b"[-9, 0]", b"[" * 100_000, b"[" + b"9" * 4000 + b", 0]"],
)  # fmt: skip
def test_what_somebody_else_wrote_about_rounds_stops_none(redis: Redis, stored: bytes) -> None:
    canaries = CanaryLedger(redis, RUN)
    redis.hset(RunKeys(canary_run(RUN)).sent, json.dumps(["http://s", PROFILE]), stored)
    assert canaries.send("http://s", PROFILE, CONFIG, every=60)
    assert not canaries.send("http://s", PROFILE, CONFIG, every=60)
    assert canaries.outstanding() == 1
