"""What somebody else wrote to Redis in the place of one run's records holds up no other run."""

import zlib
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from redis import Redis

from services.aggregator.__main__ import publish_due
from services.aggregator.index.overview import find_run
from services.aggregator.ingest import Ingester
from services.aggregator.metrics import RedisCollector
from shared.errors import OutputError
from shared.ledger import Ledger, list_runs, packing, runs_progress
from shared.ledger.packing import OversizedRecordError, inflate, unpack
from shared.run_record import RunState
from tests.aggregator.reports import finished
from tests.shared.ledgers import generation, put_meta, verdict

META = "plumbline:run:bad:meta"
HASHES = "plumbline:run:bad:hashes"
DAMAGES: dict[str, tuple[object, ...]] = {
    "meta is a string": ("SET", META, "x"),
    "no JSON": ("HSET", META, "name", "{"),
    "no JSON in the state": ("HSET", META, "state", "{"),
    "no UTF-8": ("HSET", META, b"\xff", b"\xff"),
    "deep JSON": ("HSET", META, "config", "[" * 200_000),
    "another config": ("HSET", META, "config", '{"judge": 7}'),
    "a state of another type": ("HSET", META, "state", "[1]"),
    "another incarnation": ("HSET", META, "incarnation", "{"),
    "another plan": ("HSET", META, "plan", "[]"),
    "a plan of junk": ("HSET", META, "plan", b"\xff\x00"),
    "verdicts are a list": ("RPUSH", "plumbline:run:bad:verdicts", "x"),
    "hashes are a string": ("SET", HASHES, "x"),
    "a hash of no sample": ("HSET", HASHES, "x", "y"),
    "events are a string": ("SET", "plumbline:run:bad:events", "x"),
    "completions are junk": ("HSET", "plumbline:run:bad:completions", "d1/p1/0", b"\x00"),
    "a date that is none": ("HSET", META, "started_at", "1e300"),
    "a verdict with a number too large": (
        *("HSET", "plumbline:run:bad:verdicts", "d1/p1/0"),
        verdict(generation("p1")).model_copy(update={"cases_total": 10**30}).model_dump_json(),
    ),
    "a verdict is junk": ("HSET", "plumbline:run:bad:verdicts", "d1/p1/0", b"\xff"),
    "canaries are a string": ("SET", "plumbline:run:bad:canaries", "x"),
    "canaries are junk": ("HSET", "plumbline:run:bad:canaries", "x", b"\xff"),
}


def damage(redis: Redis, command: tuple[object, ...], run: str = "bad") -> None:
    """Execute a command, whose key is one of the run ``bad``, on the same key of a run."""
    name, key, *values = command
    key = str(key).replace(":bad:", f":{run}:")
    if name in ("SET", "RPUSH"):
        redis.delete(key)
    redis.execute_command(name, key, *values)  # type: ignore[arg-type]


def test_the_others_are_indexed_and_published(redis: Redis, tmp_path: Path) -> None:
    for number, command in enumerate(DAMAGES.values()):
        finished(redis, str(tmp_path / f"bad{number}"), run=f"bad{number}")
        damage(redis, command, f"bad{number}")
    good = finished(redis, str(tmp_path / "good"), run="good")
    redis.sadd("plumbline:runs", b"\xff", "a/b", "x" * 5000, "")
    ingester = Ingester(redis)
    for _ in range(2):
        ingester.catch_up()
    publish_due(ingester)
    assert good.state() is RunState.COMPLETE
    with ingester.database.read() as connection:
        assert find_run(connection, "good") is not None
    registry = CollectorRegistry()
    registry.register(RedisCollector(redis, ingester.database))
    assert b"plumbline_judge_queue_jobs" in generate_latest(registry)


CASES = "plumbline:run:bad:cases"


CASE_DAMAGES: dict[str, tuple[object, ...]] = {
    "another type": ("RPUSH", CASES, "x"),
    "no zlib": ("HSET", CASES, "d1/p1/0", b"\xff"),
    "deep JSON": ("HSET", CASES, "d1/p1/0", packing.pack("[" * 200_000)),
    "another shape": (
        *("HSET", CASES, "d1/p1/0"),
        packing.pack('{"recorded": "all", "cases": [{}]}'),
    ),
    "cut off": ("HSET", CASES, "d1/p1/0", zlib.compress(b" " * 50)[:-3]),
}


def test_cases_that_cannot_be_read_fail_their_run(redis: Redis, tmp_path: Path) -> None:
    runs = {}
    for number, (name, command) in enumerate(CASE_DAMAGES.items()):
        runs[name] = finished(redis, str(tmp_path / f"bad{number}"), run=f"bad{number}")
        put_meta(runs[name], config={"output": {"cases": "all"}})
        damage(redis, command, f"bad{number}")
    publish_due(Ingester(redis))
    assert {name: run.state() for name, run in runs.items()} == dict.fromkeys(runs, RunState.FAILED)
    for name, run in runs.items():
        assert "in Redis cannot be read" in str(run.meta_document()["publish_error"]), name
    assert list(tmp_path.glob("*/cases.jsonl.gz")) == []


def test_a_runner_names_what_it_cannot_read(redis: Redis, tmp_path: Path) -> None:
    for number, (name, command) in enumerate(DAMAGES.items()):
        if command[0] != "HSET":
            continue
        ledger = finished(redis, str(tmp_path / f"bad{number}"), run=f"bad{number}")
        damage(redis, command, f"bad{number}")
        for read in (
            *(ledger.meta, ledger.meta_document, ledger.plan, ledger.completed, ledger.judged),
        ):
            try:
                read()
            except OutputError as error:
                assert f"run bad{number} in Redis cannot be read" in str(error), name
                assert "\n" not in str(error), name


@pytest.mark.parametrize("fields", [{"x": "y"}, {"sample": "x", "status": "x", "accepted": "1"}])
def test_a_runner_names_a_stream_that_it_cannot_read(redis: Redis, fields: dict[str, str]) -> None:
    redis.xadd("plumbline:run:bad:events", fields)  # type: ignore[arg-type]
    with pytest.raises(OutputError, match="stream of verdicts of run bad in Redis cannot be read"):
        Ledger(redis, "bad").events()


def test_names_that_no_run_has_are_left_out(redis: Redis) -> None:
    redis.sadd("plumbline:runs", "a", b"\xff", "a/b", "../x", "x" * 5000, "a\nb")
    assert list_runs(redis) == ["a"]
    assert runs_progress(redis) == []


# Records that inflate to more than the limit


def test_records_inflate_to_a_bounded_size(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_RECORD", 1000)
    assert unpack(packing.pack("x" * 1000)) == b"x" * 1000
    with pytest.raises(OversizedRecordError):
        packing.pack("x" * 1001)
    with pytest.raises(OversizedRecordError):
        unpack(zlib.compress(b"x" * 1_000_000))
    ledger = Ledger(redis, "run-1")
    redis.hset("plumbline:run:run-1:problems", "d1/p1", zlib.compress(b" " * 1_000_000))
    with pytest.raises(OversizedRecordError):
        ledger.problem("d1", "p1")


@pytest.mark.parametrize("data", [b"", b"x", zlib.compress(b"x" * 50)[:-3], b"\x78\x9c"])
def test_what_is_no_record_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="not compressed text"):
        unpack(data)
    with pytest.raises(zlib.error):
        inflate(data, 100)
