"""Records of other versions in Redis are refused by name; nothing is lost."""

import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis

from services.aggregator.__main__ import publish_due
from services.aggregator.index.database import open_database
from services.aggregator.ingest import Ingester
from shared.config import Config
from shared.ledger import Ledger, connect, connect_async, job_id, keys
from shared.ledger.version import (
    PUT_BACK,
    OtherVersionError,
    claim_ledger,
    put_back_note,
    put_back_reasons,
)
from shared.run_record import VERSION, RunState
from shared.schemas import Generation, SampleId, Verdict
from tests.conftest import RedisServer
from tests.e2e.plumb import REPOSITORY, environment
from tests.judge.workers import Worker
from tests.reward.servers import process
from tests.shared.ledgers import RUN, enter, generation, problem, put_meta, verdict

NEWER = VERSION + 1
NAMES_BOTH = rf"version {NEWER}.*\(0\.1\.0\) reads version {VERSION};"


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    ledger = Ledger(redis, RUN)
    enter(ledger, [problem()])
    return ledger


def of_newer_release(redis: Redis) -> None:
    redis.hset(keys.VERSION, mapping={"records": NEWER, "release": "0.9.0"})


# The whole ledger


def test_a_run_records_the_version_of_the_ledger_and_its_own(ledger: Ledger, redis: Redis) -> None:
    assert redis.hgetall(keys.VERSION) == {b"records": b"3", b"release": b"0.1.0"}
    assert redis.hget(keys.RunKeys(RUN).meta, "version") == b"3"


def test_a_ledger_without_a_number_is_read(redis: Redis, redis_server: RedisServer) -> None:
    connect(redis_server.url).close()
    assert not redis.exists(keys.VERSION)


_NIGHTLY = [
    pytest.param(module, marks=pytest.mark.nightly) for module in ("aggregator", "reward", "cli")
]


@pytest.mark.parametrize("module", ["judge", *_NIGHTLY])
def test_every_service_refuses_a_newer_ledger_by_name(
    module: str, redis: Redis, redis_server: RedisServer
) -> None:
    of_newer_release(redis)
    data, recorded = "demo/data", "demo/completions.jsonl"
    arguments = ["judge", "--completions", recorded, "--data", data] if module == "cli" else []
    done = subprocess.run(
        [sys.executable, "-m", f"services.{module}", *arguments],
        cwd=REPOSITORY,
        env=environment()
        | {"REDIS_URL": redis_server.url, "PORT": "0", "PLUMBLINE_SANDBOX_CHECK": "judges"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"version {NEWER}, written by Plumbline 0.9.0" in done.stderr
    assert f"reads version {VERSION}" in done.stderr
    assert "Traceback" not in done.stderr
    assert redis.hget(keys.VERSION, "records") == str(NEWER).encode()


def test_nothing_lowers_the_version_of_a_ledger(ledger: Ledger, redis: Redis) -> None:
    of_newer_release(redis)
    with pytest.raises(OtherVersionError, match=NAMES_BOTH):
        claim_ledger(redis)
    with pytest.raises(OtherVersionError):
        enter(ledger, [problem("p2")])
    assert redis.hget(keys.VERSION, "records") == str(NEWER).encode()
    assert ledger.problem("d1", "p2") is None


async def test_a_key_of_something_else_is_refused_with_the_way_out(
    redis: Redis, redis_server: RedisServer
) -> None:
    redis.set(keys.VERSION, "2")
    with pytest.raises(OtherVersionError, match="delete the key"):
        await connect_async(redis_server.url)


# One run


def test_a_run_of_a_newer_version_is_refused_by_name(ledger: Ledger) -> None:
    put_meta(ledger, version=NEWER)
    with pytest.raises(OtherVersionError, match=f"run {RUN} in Redis has {NAMES_BOTH}"):
        ledger.meta()


async def test_a_job_of_a_newer_run_goes_back_to_the_queue_and_costs_it_nothing(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    sample = SampleId("d1", "p1")
    ledger.record(generation(sample))
    put_meta(ledger, version=NEWER)
    async with working(redis_server) as worker:
        await until(lambda: put_back(worker) >= 2)
    assert ledger.queue.waiting() == set(ids(ledger))
    assert ledger.verdict(sample) is None
    assert redis.hget(f"rq:job:{ids(ledger)[0]}", "retries_left") == b"3"
    put_meta(ledger, version=VERSION)
    async with working(redis_server):
        await until(lambda: ledger.verdict(sample))


async def test_a_config_that_has_unknown_keys_is_of_another_release(
    ledger: Ledger, redis_server: RedisServer
) -> None:
    config = json.loads(Config().model_dump_json())
    ledger.record(generation())
    put_meta(ledger, config=config | {"judge": config["judge"] | {"invented_later": 1}})
    async with Worker(redis_server.url, "w") as worker:
        running = asyncio.create_task(worker.loop.run())
        await until(lambda: put_back(worker))
        worker.loop.stop()
        await running
    assert worker.errors == []
    assert ledger.queue.waiting() == set(ids(ledger))


@pytest.mark.nightly
async def test_jobs_that_can_be_judged_are_judged_beside_those_that_go_back(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    newer = Ledger(redis, "newer")
    enter(newer, [problem()])
    for number in range(20):
        newer.record(generation(SampleId("d1", "p1", number)))
    put_meta(newer, version=NEWER)
    ledger.record(generation())
    async with working(redis_server) as worker:
        await until(lambda: ledger.verdict(SampleId("d1", "p1")))
        assert put_back(worker) < 100  # a few each second, not as fast as Redis answers
    assert newer.queue.count() == 20


def test_a_judge_tells_why_jobs_go_back(
    redis: Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    """The reason is in the hash of a real worker, and in its metrics."""
    ledger = Ledger(redis, RUN)
    enter(ledger, [problem()])
    ledger.record(generation())
    put_meta(ledger, version=NEWER)
    with process(
        "judge", "services.judge", tmp_path, REDIS_URL=redis_server.url, SANDBOX_URLS=""
    ) as (_, url):
        ends = time.monotonic() + 30
        while not (found := put_back_reasons(redis, RUN)):
            assert time.monotonic() < ends
            time.sleep(0.05)
        metrics = urllib.request.urlopen(f"{url}/metrics").read().decode()
    assert re.search(f"run {RUN} in Redis has {NAMES_BOTH}", found[0])
    assert re.search(r"^plumbline_judge_jobs_put_back_total [1-9]", metrics, re.MULTILINE)
    assert (tmp_path / "judge.log").read_text().count("jobs go back to the queue") == 1
    assert put_back_reasons(redis, "another run") == []


def test_a_runner_tells_each_reason_once(ledger: Ledger, redis: Redis) -> None:
    note = put_back_note(RUN, "run run-1 has version 3")
    redis.sadd("rq:workers:judge", "rq:worker:one", "rq:worker:two", "rq:worker:three")
    redis.hset("rq:worker:one", PUT_BACK, note)
    redis.hset("rq:worker:two", PUT_BACK, note)
    redis.hset("rq:worker:three", PUT_BACK, "{}")
    assert put_back_reasons(redis, RUN) == ["run run-1 has version 3"]
    assert put_back_reasons(redis) == ["run run-1 has version 3"]
    assert put_back_reasons(redis, RUN, within=-1.0) == []


def test_an_aggregator_leaves_a_newer_run_alone(
    ledger: Ledger, redis: Redis, tmp_path: Path
) -> None:
    """Other runs are indexed and published meanwhile; nothing is written to the newer one."""
    other = Ledger(redis, "readable")
    enter(other, [problem()])
    for one in (ledger, other):
        one.record(generation())
        one.record_verdict(verdict(generation()))
        one.set_state(RunState.JUDGED)
    put_meta(ledger, version=NEWER)
    before = redis.hgetall(keys.RunKeys(RUN).meta)
    ingester = Ingester(redis, open_database(tmp_path / "index"))
    ingester.catch_up()
    publish_due(ingester)
    with ingester.database.read() as connection:
        found = [row["run"] for row in connection.execute("SELECT run FROM runs")]
    ingester.database.close()
    assert found == ["readable"]
    assert redis.hgetall(keys.RunKeys(RUN).meta) == before


# A worker in this process


@asynccontextmanager
async def working(server: RedisServer) -> AsyncIterator[Worker]:
    async def judge(one: Generation) -> Verdict:
        return verdict(one)

    async with Worker(server.url, "w", judge=judge) as worker:
        running = asyncio.create_task(worker.loop.run())
        yield worker
        worker.loop.stop()
        await running
        assert worker.errors == []


async def until(true: Callable[[], object], seconds: float = 30) -> None:
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends
        await asyncio.sleep(0.02)


def put_back(worker: Worker) -> float:
    found = worker.metrics.registry.get_sample_value("plumbline_judge_jobs_put_back_total")
    return found or 0.0


def ids(ledger: Ledger) -> list[str]:
    return [job_id(ledger.run, one, sha) for one, sha in ledger.completed().items()]
