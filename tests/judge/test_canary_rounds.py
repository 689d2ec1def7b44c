"""Rounds of canaries beside a run's samples: begun once, recorded, told apart from samples."""

import asyncio
import time

import pytest
from redis import Redis

from services.aggregator.publish import publish
from services.judge import canaries as rounds
from shared.ledger import CanaryLedger, Ledger
from shared.ledger.keys import RunKeys
from shared.run_record import RunState, make_plan
from tests.conftest import RedisServer
from tests.judge import faulty_sandbox as faults
from tests.judge.faulty_sandbox import faulty
from tests.judge.workers import Worker
from tests.shared.ledgers import RUN, enter, generation, problem

PROBLEMS = [problem(f"p{n}") for n in range(3)]
PLAN = make_plan(PROBLEMS, lambda _problem: range(1))
KEY = RunKeys(RUN).canaries


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
        while canaries.outstanding():
            await asyncio.sleep(0.02)
        assert worker.errors == []
    return worker


def names(redis: Redis) -> set[str]:
    """The names of the rounds that were begun, of any sandbox."""
    return {field.decode().partition(" programs ")[2] for field in redis.hkeys(KEY)}


async def test_every_sandbox_gets_a_round_beside_the_samples(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    async with faulty(sandbox_url, faults.NO_MEMORY_LIMIT) as other:
        worker = await judge_all(redis_server, sandbox_url, other)
    record = CanaryLedger(redis, RUN).record()
    assert {sandbox.sandbox for sandbox in record.sandboxes} == {sandbox_url, other}, redis.hgetall(
        KEY
    )
    assert [sandbox.sent for sandbox in record.sandboxes] == [4, 4]
    lines = record.distrust  # on a busy machine a program may be late besides
    fault = f"sandbox {other}: memory limit not enforced: 1190 MiB allocated"
    assert any(line.startswith(fault) for line in lines), lines
    assert all(line.startswith(f"sandbox {other}: ") for line in lines), lines
    assert not record.trusted
    # Nothing of it is in the run's own numbers, nor in those of the process.
    assert ledger.judged() == set(PLAN.samples())
    assert redis.hget(RunKeys(RUN).meta, "verdicts_written") == b"3"
    assert redis.xlen(RunKeys(RUN).events) == 3
    assert worker.metrics.judged == 3
    assert worker.metrics.failure() in lines
    counted = worker.metrics.registry.get_sample_value
    labels = {"sandbox": other, "outcome": "wrong"}
    assert counted("plumbline_judge_canaries_total", labels) >= 1
    assert counted("plumbline_judge_samples_total", {"status": "success"}) == 3
    ledger.set_state(RunState.JUDGED)
    assert publish(ledger) is RunState.UNTRUSTED
    ledger.delete()
    assert not redis.exists(KEY)


async def test_a_session_ends_with_another_round(
    ledger: Ledger,
    redis: Redis,
    redis_server: RedisServer,
    sandbox_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "_SHORT", 0.0)
    both = {"first 1", "last 1"}
    for _ in range(2):  # the other judge finds both rounds begun
        await judge_all(redis_server, sandbox_url)
        assert names(redis) == both
        for one in ledger.completed().items():
            ledger.rejudge([one])  # jobs of their own, one after the other
    enter(ledger, PROBLEMS, PLAN)
    await judge_all(redis_server, sandbox_url)
    assert names(redis) == both | {"first 2", "last 2"}
    assert CanaryLedger(redis, RUN).record().trusted


async def test_a_session_without_an_end_has_rounds_by_the_clock(
    ledger: Ledger,
    redis: Redis,
    redis_server: RedisServer,
    sandbox_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "_SHORT", 0.0)
    redis.hdel(RunKeys(RUN).meta, "planned")
    await judge_all(redis_server, sandbox_url)
    begun = names(redis)
    assert "first 1" in begun and len(begun) > 1
    assert all(int(name) * 600 <= time.time() for name in begun - {"first 1"})
    canaries = CanaryLedger(redis, RUN)
    canaries.forget(keep=1)
    (left,) = canaries.record().sandboxes
    assert left.sent == 4 and "first 1" not in names(redis)


async def test_a_sandbox_that_is_away_is_not_wrong(redis: Redis, redis_server: RedisServer) -> None:
    ledger = Ledger(redis, RUN)
    config = {"judge": {"retry_budget": 0.1, "max_attempts": 1}}
    enter(ledger, PROBLEMS, PLAN, config=config)
    ledger.record(generation(PLAN.samples()[0], "```python\nprint(input())\n```"))
    worker = await judge_all(redis_server, "http://127.0.0.1:9")
    record = CanaryLedger(redis, RUN).record()
    (found,) = record.sandboxes
    assert record.trusted
    assert (found.right, found.wrong, found.unjudged) == (0, 0, 4)
    assert worker.metrics.failure() is None


async def test_a_judge_that_stops_leaves_its_round_to_others(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    stopped = asyncio.Event()

    async def slow(call: faults.Call, send: faults.Send) -> faults.Body:
        if call.body.get("inputs") != ["1\n"]:  # a canary's
            await stopped.wait()
        return await send(call.body)

    async with faulty(sandbox_url, slow) as url:
        async with Worker(redis_server.url, "w", sandbox_urls=url) as worker:
            await worker.judge_all()
            assert CanaryLedger(redis, RUN).outstanding() == 1
        stopped.set()
    assert not redis.exists(KEY)
