"""`plumb backup` and `plumb restore`: what comes back, and what is refused."""

import json
import threading
from pathlib import Path

import pytest
from redis import Redis

from services.aggregator.index.database import open_database
from services.aggregator.index.overview import all_runs
from services.aggregator.ingest import Ingester
from shared.artifacts import OutputFolder
from shared.ledger import Ledger, keys, snapshot
from shared.ledger.keys import RewardKeys, RunKeys
from shared.run_record import VERSION, RunState
from tests.cli.commands import Outcome, plumb
from tests.conftest import RedisServer
from tests.runner.test_run import SAMPLES, FakeSource, Others, Stage
from tests.shared.ledgers import RUN, enter, generation, problem, verdict

SESSION = "reward/0123456789abcdef"


@pytest.fixture
def target(own_redis_server: RedisServer) -> Redis:
    return Redis.from_url(own_redis_server.url)


def fill(redis: Redis, run: str = RUN, samples: int = 20) -> Ledger:
    """A run in progress: half of the samples judged, jobs queued, a runner at work."""
    ledger = Ledger(redis, run)
    enter(ledger, [problem(f"p{i}") for i in range(samples)], name="n", state=RunState.RUNNING)
    for i in range(samples):
        ledger.record(generation(f"p{i}"))
        if i % 2:
            ledger.record_verdict(verdict(generation(f"p{i}")))
    return ledger


def back_up(source: RedisServer, folder: Path, *options: str) -> Outcome:
    done = plumb("backup", str(folder), *options, folder=folder.parent, REDIS_URL=source.url)
    assert done.code == 0, done.stderr
    return done


def restored(target: RedisServer, folder: Path, *options: str) -> Outcome:
    return plumb("restore", str(folder), *options, folder=folder.parent, REDIS_URL=target.url)


def content(redis: Redis) -> dict[bytes, object]:
    """The values of all keys but locks."""
    read = {
        b"hash": redis.hgetall,
        b"set": redis.smembers,
        b"string": redis.get,
        b"stream": lambda key: (redis.xrange(key), redis.xinfo_groups(key)),
    }
    found = [key for key in redis.scan_iter("plumbline:*") if not key.endswith(b":lock")]
    return {key: read[redis.type(key)](key) for key in found}


def test_a_run_in_progress_comes_back_as_it_was(
    redis: Redis,
    redis_server: RedisServer,
    target: Redis,
    own_redis_server: RedisServer,
    tmp_path: Path,
) -> None:
    ledger = fill(redis)
    ledger.lock("somebody", 60)
    fill(redis, "run-1:with a colon", 2)
    redis.set(RewardKeys(SESSION).answer("d/p/0"), "remembered", px=60_000)
    redis.hset(keys.REWARD_SESSIONS, "0123456789abcdef", "1")
    redis.set(keys.lease("job"), "worker", px=60_000)
    database = open_database(tmp_path / "index")
    Ingester(redis, database).catch_up()
    said = back_up(redis_server, tmp_path / "backup", "--index", str(tmp_path / "index")).stdout
    assert "2 runs, 2 reward sessions, the index" in said
    database.close()

    done = restored(own_redis_server, tmp_path / "backup", "--index", str(tmp_path / "new"))
    assert done.code == 0, done.stderr
    expected = content(redis)
    del expected[keys.lease("job").encode()]
    assert content(target) == expected
    assert 0 < target.pttl(RewardKeys(SESSION).answer("d/p/0")) <= 60_000
    assert target.ttl(RunKeys(RUN).meta) == -1
    # The aggregator goes on where the index was.
    Ledger(target, RUN).record_verdict(verdict(generation("p0")))
    database = open_database(tmp_path / "new")
    ingester = Ingester(target, database)
    assert ingester.catch_up()
    with database.read() as connection:
        assert {run.run: run.verdicts for run in all_runs(connection)}[RUN] == 11
    database.close()


async def test_a_restored_run_resumes(
    redis: Redis,
    redis_server: RedisServer,
    target: Redis,
    own_redis_server: RedisServer,
    tmp_path: Path,
) -> None:
    before = Stage(redis, OutputFolder(str(tmp_path / "output")))
    enter(before.ledger, [problem(f"p{i}") for i in range(6)], before.plan, name="n")
    for sample in SAMPLES[:7]:
        before.ledger.record(generation(sample, "answer"))
    for sample in SAMPLES[:3]:
        before.ledger.record_verdict(verdict(generation(sample, "answer")))
    back_up(redis_server, tmp_path / "backup")
    assert restored(own_redis_server, tmp_path / "backup").code == 0
    stage, source = Stage(target, before.folder), FakeSource()
    others = Others(own_redis_server.url, stage.identity.run, judging=True)
    try:
        await stage.complete(source)
    finally:
        others.stop()
    assert source.asked == [SAMPLES[7:]]
    assert sorted(others.judged) == sorted(SAMPLES[3:])  # jobs are queued again


@pytest.mark.nightly
def test_a_backup_during_a_run_is_of_one_moment(
    redis: Redis,
    redis_server: RedisServer,
    target: Redis,
    own_redis_server: RedisServer,
    tmp_path: Path,
) -> None:
    ledger, stop = fill(redis), threading.Event()

    def write() -> None:
        number = 100
        while not stop.is_set():
            ledger.record(generation(f"p{number}"))
            ledger.record_verdict(verdict(generation(f"p{number}")))
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        back_up(redis_server, tmp_path / "backup")
    finally:
        stop.set()
        writer.join()
    assert restored(own_redis_server, tmp_path / "backup").code == 0
    found = Ledger(target, RUN)
    samples = list(found.completed())
    assert len(samples) > 20
    assert {one.sample for one in found.completions(samples)} == set(samples)
    meta = found.meta()
    assert meta is not None
    assert meta.completions_written == len(samples)
    assert meta.verdicts_written == len(found.judged()) == target.xlen(RunKeys(RUN).events)


def test_large_values_are_stored_by_their_parts(
    redis: Redis, target: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = fill(redis)
    redis.expire(RunKeys(RUN).events, 60)
    (whole,) = snapshot.groups(redis)
    monkeypatch.setattr(snapshot, "_LARGE", 0)
    with (tmp_path / "file").open("w+b") as file:
        snapshot.write_group(redis, whole, file)
        file.seek(0)
        assert b'"kind": "stream"' in file.read()
        file.seek(0)
        snapshot.restore_group(target, whole, file)
    copy = Ledger(target, RUN)
    assert copy.completed() == ledger.completed()
    assert copy.events() == ledger.events()
    assert copy.meta() == ledger.meta()
    assert 0 < target.ttl(RunKeys(RUN).events) <= 60


def test_runs_that_are_there_are_replaced_only_if_told(
    redis: Redis,
    redis_server: RedisServer,
    target: Redis,
    own_redis_server: RedisServer,
    tmp_path: Path,
) -> None:
    fill(redis)
    back_up(redis_server, tmp_path / "backup")
    other = fill(target, "other")
    fill(target, RUN, 30)
    refused = restored(own_redis_server, tmp_path / "backup")
    assert refused.code == 2
    assert "has runs already" in refused.line
    assert Ledger(target, RUN).completed_count() == 30
    assert Ledger(target, RUN).lock("runner", 60)
    busy = restored(own_redis_server, tmp_path / "backup", "--force")
    assert "a runner is working on run-1" in busy.line
    Ledger(target, RUN).unlock("runner")
    assert restored(own_redis_server, tmp_path / "backup", "--force").code == 0
    assert Ledger(target, RUN).completed_count() == 20
    assert other.completed_count() == 20
    again = plumb("backup", str(tmp_path / "backup"), folder=tmp_path, REDIS_URL=redis_server.url)
    assert "has a backup already" in again.line


def _change_manifest(folder: Path, **fields: object) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **fields}))


def _other_version(folder: Path) -> str:
    _change_manifest(folder, version=7)
    return "is a backup of version 7, this program reads version 1"


def _records_of_a_later_release(folder: Path) -> str:
    _change_manifest(folder, records=VERSION + 1, plumbline="9.9")
    return f"has version {VERSION + 1}, written by Plumbline 9.9, but this Plumbline"


def _flipped_bit(folder: Path) -> str:
    (file,) = (folder / "ledger").iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    return "is damaged: its SHA-256"


def _missing_file(folder: Path) -> str:
    (file,) = (folder / "ledger").iterdir()
    file.unlink()
    return "cannot be read"


def _unfinished(folder: Path) -> str:
    (folder / "manifest.json").unlink()
    return "no backup, or one that did not end"


def _outside(folder: Path) -> str:
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace("ledger/", "../ledger/"))
    return "outside of the backup"


@pytest.fixture(scope="module")
def small_backup(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with Redis.from_url(redis_server.url) as redis:
        redis.flushall()
        fill(redis, samples=4)
    folder = tmp_path_factory.mktemp("backups") / "small"
    back_up(redis_server, folder)
    return folder


@pytest.mark.parametrize(
    "spoil",
    [
        _other_version,
        _records_of_a_later_release,
        _flipped_bit,
        _missing_file,
        _unfinished,
        _outside,
    ],
)
def test_a_backup_that_is_not_whole_is_refused_before_anything_is_written(
    small_backup: Path, redis: Redis, redis_server: RedisServer, tmp_path: Path, spoil: object
) -> None:
    copy = tmp_path / "backup"
    (copy / "ledger").mkdir(parents=True)
    for file in small_backup.rglob("*"):
        if file.is_file():
            (copy / file.relative_to(small_backup)).write_bytes(file.read_bytes())
    expected = spoil(copy)  # type: ignore[operator]
    refused = restored(redis_server, copy)
    assert refused.code == 2
    assert expected in refused.line
    assert redis.dbsize() == 0


def test_the_ledger_of_an_embedded_run(small_backup: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "output")
    done = plumb("restore", str(small_backup), "--output", output, folder=tmp_path)
    assert done.code == 0, done.stderr
    copied = plumb("backup", str(tmp_path / "again"), "--output", output, folder=tmp_path)
    assert copied.code == 0, copied.stderr
    assert "1 runs" in copied.stdout
    nothing = plumb("backup", str(tmp_path / "b"), "--output", str(tmp_path), folder=tmp_path)
    assert "no run with --embedded was here" in nothing.line
