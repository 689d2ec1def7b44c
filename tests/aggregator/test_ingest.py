import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from services.aggregator.index.database import open_database
from services.aggregator.index.overview import IndexedRun, all_runs
from services.aggregator.index.queries import SampleQuery
from services.aggregator.index.rows import SampleRow
from services.aggregator.index.samples import samples_page
from services.aggregator.index.signatures import signature_id
from services.aggregator.ingest import Ingester
from shared.ledger import Ledger, VerdictEvent
from shared.run_record import RunState, make_plan
from shared.schemas import FailedCase, JudgedCode, SampleId
from shared.statuses import ExtractionReason, FinalStatus
from tests.aggregator.runs import begin, counted, judge
from tests.conftest import RedisServer
from tests.shared.ledgers import enter, generation, problem, put_meta, verdict

PROBLEMS = [
    problem("p1", difficulty="hard", extra_info='{"tags": ["dp", "graphs"]}'),
    problem("p2"),
]
PLAN = make_plan(PROBLEMS, lambda _problem: range(2))


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    ledger = Ledger(redis, "run-1")
    enter(ledger, PROBLEMS, PLAN)
    return ledger


@pytest.fixture
def ingester(redis: Redis) -> Ingester:
    return Ingester(redis)


def indexed(ingester: Ingester) -> dict[str, IndexedRun]:
    with ingester.database.read() as connection:
        return {run.run: run for run in all_runs(connection)}


def rows(ingester: Ingester, run: str = "run-1") -> list[SampleRow]:
    with ingester.database.read() as connection:
        return samples_page(
            connection, indexed(ingester)[run].id, SampleQuery.model_construct(limit=5000)
        ).samples


def verdict_events(ingester: Ingester) -> dict[tuple[str, ...], float]:
    return counted(ingester.metrics, "verdicts_total")


def test_a_row_has_all_that_is_known_of_its_sample(ledger: Ledger, ingester: Ingester) -> None:
    sample = SampleId("d1", "p1", 1)
    made = generation(
        sample, output_tokens=7, gen_time=1.5, replica="r0", finished_at=100.0, finish_reason="stop"
    )
    ledger.record(made)
    found = {"pass_ratio": 0.5, "cases_passed": 1, "cases_total": 2, "detail": "SIGSEGV"}
    found["cases_not_run"] = 1
    times = {"total_judge_time": 2.5, "judged_at": 101.0, "worker": "w1", "attempts": 3}
    status = FinalStatus.RUNTIME_ERROR
    case = FailedCase(case_index=1, status=status, stderr="Traceback\nKeyError: 7\n")
    told = {"cpu_time": 0.25, "peak_memory": 2**20, "first_failed_case": case}
    code = JudgedCode.of("print(1)", ExtractionReason.BARE_CODE, 0)
    judged = verdict(made, status, **found, **times, **told, code=code, confirmed=2, flipped=1)
    ledger.record_verdict(judged)
    ingester.catch_up()
    failure = "runtime_error; SIGSEGV; code: bare_code; KeyError: N"
    assert [row.model_dump() for row in rows(ingester)] == [
        {
            "dataset": "d1",
            "problem_id": "p1",
            "sample_index": 1,
            "final_status": status,
            **found,
            **times,
            "completion_sha256": made.completion_sha256,
            "accepted": False,
            "confirmed": 2,
            "flipped": 1,
            "output_tokens": 7,
            "gen_time": 1.5,
            "replica": "r0",
            "finished_at": 100.0,
            "difficulty": "hard",
            "tags": ["dp", "graphs"],
            "num_tests": 1,
            "prompt_length": len("Solve p1."),
            "finish_reason": "stop",
            "extraction": "bare_code",
            "cpu_time": 0.25,
            "peak_memory": 2**20,
            "failure": failure,
            "failure_id": signature_id(failure),
            "stderr": "Traceback\nKeyError: 7",
        }
    ]


def test_it_goes_on_where_it_was(ledger: Ledger, ingester: Ingester) -> None:
    assert ingester.catch_up() is False
    assert list(indexed(ingester)) == ["run-1"]
    judge(ledger, SampleId("d1", "p1"))
    assert ingester.catch_up() is True
    judge(ledger, SampleId("d1", "p2"), FinalStatus.TIMEOUT)
    assert ingester.catch_up() is True
    assert ingester.catch_up() is False
    run = indexed(ingester)["run-1"]
    assert run.statuses == {"d1": {FinalStatus.SUCCESS: 1, FinalStatus.TIMEOUT: 1}}
    assert (run.verdicts, run.events, run.accepted) == (2, 2, {"d1": 1})


def test_a_sample_judged_again_replaces_its_row_and_counts_as_another_verdict(
    ledger: Ledger, ingester: Ingester
) -> None:
    sample = SampleId("d1", "p1")
    judge(ledger, sample, FinalStatus.API_ERROR)
    ingester.catch_up()
    ledger.rejudge([(sample, generation(sample).completion_sha256)])
    ledger.record_verdict(verdict(generation(sample)))
    ingester.catch_up()
    assert indexed(ingester)["run-1"].statuses == {"d1": {FinalStatus.SUCCESS: 1}}
    assert [row.final_status for row in rows(ingester)] == [FinalStatus.SUCCESS]
    assert verdict_events(ingester) == {("d1", "api_error"): 1, ("d1", "success"): 1}


def test_a_sample_whose_verdict_was_taken_away_has_no_row(
    ledger: Ledger, ingester: Ingester
) -> None:
    sample = SampleId("d1", "p1")
    judge(ledger, sample, FinalStatus.API_ERROR)
    ledger.rejudge([(sample, generation(sample).completion_sha256)])
    ingester.catch_up()
    assert rows(ingester) == []
    assert verdict_events(ingester) == {("d1", "api_error"): 1}


def test_all_runs_are_followed_and_one_that_is_deleted_goes(
    redis: Redis, ledger: Ledger, ingester: Ingester
) -> None:
    other = Ledger(redis, "run-2")
    enter(other)
    judge(other, SampleId("d1", "p1"))
    ingester.catch_up()
    assert {name: run.verdicts for name, run in indexed(ingester).items()} == {
        "run-1": 0,
        "run-2": 1,
    }
    other.delete()
    ingester.catch_up()
    assert list(indexed(ingester)) == ["run-1"]
    with ingester.database.read() as connection:
        assert connection.execute("SELECT count(*) FROM samples").fetchone()[0] == 0
    assert verdict_events(ingester) == {("d1", "success"): 1}


def test_a_run_begun_anew_is_indexed_anew(ledger: Ledger, ingester: Ingester) -> None:
    """What ``--force`` does takes less time than the aggregator's interval."""
    judge(ledger, SampleId("d1", "p1"))
    ingester.catch_up()
    ledger.delete()
    enter(ledger)
    ingester.catch_up()
    assert rows(ingester) == []
    judge(ledger, SampleId("d1", "p2"))
    ingester.catch_up()
    assert [row.problem_id for row in rows(ingester)] == ["p2"]
    assert verdict_events(ingester) == {("d1", "success"): 2}


def test_state_plan_and_facts_of_a_run(ledger: Ledger, ingester: Ingester) -> None:
    put_meta(ledger, output="s3://user:secret@host/out", seed=7)
    ingester.catch_up()
    run = indexed(ingester)["run-1"]
    assert (run.state, run.planned) == ("running", {"d1": (2, 4)})
    assert (run.facts["seed"], run.facts["output"]) == (7, "s3://***@host/out")
    assert "plan" not in run.facts
    ledger.set_state(RunState.JUDGED)
    ingester.catch_up()
    assert indexed(ingester)["run-1"].state == "judged"


class CrashError(Exception):
    pass


def crash(*_arguments: object) -> None:
    raise CrashError


@pytest.mark.parametrize(
    "step",
    [
        "services.aggregator.ingest.Ingester._read",
        "services.aggregator.index.writer.IndexWriter._put_texts",
        "services.aggregator.ingest.IndexWriter.apply",
    ],
)
def test_a_crash_at_any_step_loses_nothing_and_counts_nothing_twice(
    redis: Redis, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    judge(ledger, SampleId("d1", "p1"), FinalStatus.TIMEOUT)
    judge(ledger, SampleId("d1", "p2"))
    database = open_database(tmp_path)
    crashed = Ingester(redis, database)
    with monkeypatch.context() as patched:
        patched.setattr(step, crash)
        with pytest.raises(CrashError):
            crashed.catch_up()
    database.close()
    judge(ledger, SampleId("d1", "p2", 1))
    database = open_database(tmp_path)
    heir = Ingester(redis, database)
    heir.catch_up()
    assert len(rows(heir)) == 3
    counts = Counter(verdict_events(crashed)) + Counter(verdict_events(heir))
    assert counts == {("d1", "timeout"): 1, ("d1", "success"): 2}
    database.close()


def test_a_run_half_forgotten_is_forgotten_by_the_next(
    redis: Redis, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        judge(ledger, SampleId("d1", f"p{number}"))
    database = open_database(tmp_path)
    monkeypatch.setattr("services.aggregator.index.writer.DELETED_AT_ONCE", 2)
    ingester = Ingester(redis, database)
    ingester.catch_up()
    ledger.delete()
    write, left = database.write, [3]

    def crash_later():
        left[0] -= 1
        return crash() if left[0] < 0 else write()

    monkeypatch.setattr(database, "write", crash_later)
    with pytest.raises(CrashError):
        ingester.catch_up()
    assert indexed(ingester) == {}
    monkeypatch.undo()
    Ingester(redis, database).catch_up()
    with database.read() as connection:
        for table in ("runs", "samples", "tallies", "problems"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0
    database.close()


def test_a_run_that_begins_anew_while_it_is_read_is_not_mixed(
    redis: Redis, ledger: Ledger, ingester: Ingester, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge(ledger, SampleId("d1", "p1"))
    read = Ingester._read

    def read_late(*arguments):
        ledger.delete()
        enter(ledger)
        judge(ledger, SampleId("d1", "p2"))
        return read(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Ingester, "_read", read_late)
        ingester.catch_up()
    ingester.catch_up()
    assert [row.problem_id for row in rows(ingester)] == ["p2"]
    assert verdict_events(ingester) == {("d1", "success"): 1}


# `kill -9` while indexing: every verdict is ingested exactly once


_SAMPLES = 900
_CHILD = """
import sys
from pathlib import Path
from redis import Redis
from services.aggregator.index.database import open_database
from services.aggregator import ingest
database = open_database(Path(sys.argv[2]))
ingest.BATCH = 5
ingester = ingest.Ingester(Redis.from_url(sys.argv[1]), database)
while True:
    ingester.catch_up()
"""


def judge_at_random(ledger: Ledger, chance: random.Random) -> dict[SampleId, FinalStatus]:
    truth = {}
    for number in range(_SAMPLES):
        sample = SampleId("d1", f"p{number % 300}", number // 300)
        status = chance.choice(list(FinalStatus))
        judge(ledger, sample, status, {"output_tokens": 1})
        if status is FinalStatus.API_ERROR and chance.random() < 0.5:
            ledger.rejudge([(sample, generation(sample).completion_sha256)])
            status = FinalStatus.TIMEOUT
            ledger.record_verdict(verdict(generation(sample, output_tokens=1), status))
        truth[sample] = status
    return truth


def entries_indexed(folder: Path) -> int:
    """How many entries of the stream the index has; -1 before there is one."""
    path = folder / "index.sqlite"
    if not path.exists():
        return -1
    with closing(sqlite3.connect(path)) as connection:
        try:
            row = connection.execute("SELECT events FROM runs").fetchone()
        except sqlite3.OperationalError:
            return -1
    return -1 if row is None else row[0]


def killed_in_the_middle(url: str, folder: Path, chance: random.Random) -> int:
    """Let a child index some more, kill it, and return how far it came."""
    before = max(0, entries_indexed(folder))
    child = subprocess.Popen([sys.executable, "-c", _CHILD, url, str(folder)])
    while entries_indexed(folder) <= before:
        assert child.poll() is None
        time.sleep(0.005)
    time.sleep(chance.random() * 0.03)
    child.kill()
    child.wait()
    return entries_indexed(folder)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_killed_again_and_again(redis: Redis, redis_server: RedisServer, tmp_path: Path) -> None:
    chance = random.Random(3)
    ledger = begin(redis, [problem(f"p{n}") for n in range(300)])
    truth = judge_at_random(ledger, chance)
    total = redis.xlen("plumbline:run:run-1:events")
    ends = [killed_in_the_middle(redis_server.url, tmp_path, chance) for _ in range(4)]
    assert 0 < ends[0] < ends[-1] < total
    database = open_database(tmp_path)
    last = Ingester(redis, database)
    last.catch_up()
    with database.read() as connection:
        (run,) = all_runs(connection)
        rows = samples_page(connection, run.id, SampleQuery.model_construct(limit=10_000)).samples
    database.close()
    assert {
        SampleId(r.dataset, r.problem_id, r.sample_index): r.final_status for r in rows
    } == truth
    assert run.events == total > _SAMPLES
    assert run.statuses == {"d1": Counter(truth.values())}
    assert run.accepted == {"d1": run.statuses["d1"][FinalStatus.SUCCESS]}
    # What the killed ones have entries_indexed is not counted again.
    rest = _all_events(ledger)[ends[-1] :]
    expected = Counter(("d1", event.status.value) for event in rest)
    assert counted(last.metrics, "verdicts_total") == expected


def _all_events(ledger: Ledger) -> list[VerdictEvent]:
    events: list[VerdictEvent] = []
    while found := ledger.events(events[-1].entry if events else "0"):
        events += found
    return events
