"""What an earlier release left behind is read: its ledger, its index, its run's folder.

``tests/fixtures/ledger_v2`` was recorded by ``tests.upgrade.record`` from a release before ledgers
had a number: a run that was interrupted with jobs in the queue.
"""

import asyncio
import gzip
import json
import shutil
from pathlib import Path

import pytest
from redis import Redis
from structlog.testing import capture_logs

from services.aggregator.__main__ import publish_due
from services.aggregator.index.database import Database, open_database
from services.aggregator.ingest import Ingester
from shared.finished_run import open_run, open_runs
from shared.ledger import Ledger, connect, keys, list_runs
from shared.ledger.ledger import unjudged_verdict
from shared.run_record import VERSION, RunState
from shared.schemas import Generation, Verdict
from tests.conftest import RedisServer
from tests.judge.workers import Worker
from tests.shared.ledgers import put_meta, verdict
from tests.upgrade.fields import fields
from tests.upgrade.record import load_keys, recorded_keys

RECORDED = Path(__file__).parents[1] / "fixtures" / "ledger_v2"


@pytest.fixture
def ledger(redis: Redis, redis_server: RedisServer) -> Ledger:
    load_keys(redis, recorded_keys(RECORDED))
    connect(redis_server.url).close()  # not refused
    [run] = list_runs(redis)
    return Ledger(redis, run)


def test_a_ledger_without_a_number_is_read_as_it_is(ledger: Ledger, redis: Redis) -> None:
    meta, plan = ledger.meta(), ledger.plan()
    assert meta is not None and plan is not None
    samples = plan.samples()
    assert (meta.state, meta.sessions, len(samples)) == (RunState.RUNNING, 1, 8)
    assert len(list(ledger.completions(samples))) == 5
    assert [one.final_status for one in ledger.verdicts(samples)]
    assert len(list(ledger.problems(samples))) == 8
    assert ledger.queue.count() == 2
    assert redis.hget(keys.RunKeys(ledger.run).meta, "version") is None


async def test_jobs_in_the_queue_are_judged(ledger: Ledger, redis_server: RedisServer) -> None:
    async def judge(one: Generation) -> Verdict:
        return verdict(one)

    async with Worker(redis_server.url, "w", judge=judge) as worker:
        await asyncio.wait_for(worker.judge_all(), 30)
    assert worker.errors == []
    assert ledger.judged() == ledger.completed().keys()
    assert len(ledger.judged()) == 5


def test_the_run_is_indexed_and_published(ledger: Ledger, tmp_path: Path) -> None:
    output = tmp_path / "output"
    put_meta(ledger, output=str(output))
    plan = ledger.plan()
    assert plan is not None
    for sample in plan.samples():
        if sample not in ledger.completed():
            missing = Generation.missing(sample)
            reason = unjudged_verdict(sample, missing.completion_sha256, "http_503")
            ledger.record(missing, reason)
    for generation in ledger.completions(plan.samples()):
        ledger.record_verdict(verdict(generation))
    ledger.set_state(RunState.JUDGED)
    database = open_database(tmp_path / "index")
    ingester = Ingester(ledger.redis, database)
    ingester.catch_up()
    assert publish_due(ingester)
    assert verdicts_in(database) == 8
    database.close()
    assert open_run(str(output)).record.samples == 8


def test_migration_gives_an_earlier_run_a_number_and_changes_nothing_else(
    ledger: Ledger, redis: Redis
) -> None:
    before = redis.hgetall(keys.RunKeys(ledger.run).meta)
    assert [ledger.migrate(), ledger.migrate()] == [2, None]
    after = redis.hgetall(keys.RunKeys(ledger.run).meta)
    assert after == before | {b"version": str(VERSION).encode()}


def test_an_index_of_another_version_is_kept_and_rebuilt_from_the_ledger(
    ledger: Ledger, tmp_path: Path
) -> None:
    recorded = gzip.decompress((RECORDED / "index.sqlite.gz").read_bytes())
    (tmp_path / "index.sqlite").write_bytes(recorded)
    with capture_logs() as lines:
        database = open_database(tmp_path)
    assert verdicts_in(database) == 0
    Ingester(ledger.redis, database).catch_up()
    assert verdicts_in(database) == 3
    database.close()
    kept = tmp_path / "index-version-4.sqlite"
    assert kept.read_bytes() == recorded
    (logged,) = lines
    assert logged["event"] == "the index has another version, it is built again"
    assert (logged["found"], logged["kept"]) == (4, str(kept))
    with capture_logs() as again:
        open_database(tmp_path).close()
    assert again == []


def test_an_interrupted_run_of_an_earlier_release_is_listed(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "run", tmp_path / "run")
    [found], broken = open_runs(str(tmp_path), unpublished=True)
    assert (found.record.state, found.record.samples, broken) == (RunState.RUNNING, 8, [])


def test_records_have_the_fields_of_their_version() -> None:
    """A change of this file is a new version of the ledger: see ``tests.upgrade.fields``."""
    recorded = RECORDED.with_name(f"ledger_v{VERSION}") / "fields.json"
    assert fields() == json.loads(recorded.read_text())


def verdicts_in(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute("SELECT count(*) FROM samples").fetchone()[0])
