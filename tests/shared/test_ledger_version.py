"""Records of other versions in Redis are refused by name; nothing is lost."""

import json
import subprocess
import sys

import pytest
from redis import Redis

from shared.config import Config
from shared.ledger import Ledger, connect, connect_async, keys
from shared.ledger.connection import OtherVersionError
from shared.run_record import VERSION
from shared.schemas import SampleId
from tests.conftest import RedisServer
from tests.e2e.plumb import REPOSITORY, environment
from tests.judge.workers import Worker
from tests.shared.ledgers import RUN, enter, generation, problem, put_meta, verdict

NEWER = VERSION + 1


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    ledger = Ledger(redis, RUN)
    enter(ledger, [problem()])
    return ledger


def of_newer_release(redis: Redis) -> None:
    redis.hset(keys.VERSION, mapping={"records": NEWER, "release": "0.9.0"})


# The whole ledger


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
        | {"REDIS_URL": redis_server.url, "PORT": "0", "PLUMBLINE_SANDBOX_CHECK": "none"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"version {NEWER}, written by Plumbline 0.9.0" in done.stderr
    assert f"reads version {VERSION}" in done.stderr
    assert "Traceback" not in done.stderr
    assert redis.hget(keys.VERSION, "records") == str(NEWER).encode()


async def test_a_key_of_something_else_is_refused_with_the_way_out(
    redis: Redis, redis_server: RedisServer
) -> None:
    redis.set(keys.VERSION, "2")
    with pytest.raises(OtherVersionError, match="delete the key"):
        await connect_async(redis_server.url)


def test_an_upgrade_in_the_middle_of_a_run_loses_nothing(
    ledger: Ledger, redis: Redis, redis_server: RedisServer
) -> None:
    """A later release names both numbers and changes nothing; the earlier one goes on."""
    ledger.record(generation(SampleId("d1", "p1")))
    ledger.record_verdict(verdict(generation(SampleId("d1", "p1"))))
    ledger.record(generation(SampleId("d1", "p1", 1)))
    redis.hset(keys.VERSION, "records", VERSION - 1)
    before = {key: redis.dump(key) for key in redis.keys("*")}
    with pytest.raises(OtherVersionError, match=rf"version {VERSION - 1}.*reads version {VERSION}"):
        connect(redis_server.url)
    with pytest.raises(OtherVersionError):
        enter(ledger, [problem("p2")])
    assert {key: redis.dump(key) for key in redis.keys("*")} == before
    redis.hset(keys.VERSION, "records", VERSION)
    enter(ledger, [problem()])
    assert ledger.judged() == {SampleId("d1", "p1")} and ledger.queue.count == 2


async def test_a_config_of_another_release_is_api_error(
    ledger: Ledger, redis_server: RedisServer
) -> None:
    """The next session judges its samples again."""
    config = json.loads(Config().model_dump_json())
    ledger.record(generation())
    put_meta(ledger, config=config | {"judge": config["judge"] | {"invented_later": 1}})
    async with Worker(redis_server.url, "w") as worker:
        await worker.judge_all()
    assert worker.errors == []
    verdict = ledger.verdict(generation().sample)
    assert verdict is not None and not verdict.judged
    assert "invented_later" in (verdict.detail or "")
    assert ledger.queue.count == 0
