import pytest
from redis import Redis

from services.aggregator.fold import RunFold, Runs
from shared.ledger import Ledger, RunState
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.shared.ledgers import generation, verdict


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    ledger = Ledger(redis, "run-1")
    ledger.open({"state": "running"}, [])
    return ledger


def judged(ledger: Ledger, sample: SampleId, status: FinalStatus = FinalStatus.SUCCESS) -> None:
    ledger.record(generation(sample))
    assert ledger.record_verdict(verdict(generation(sample), status))


def test_an_event_folded_twice_counts_once(ledger: Ledger) -> None:
    judged(ledger, SampleId("d1", "p1"))
    judged(ledger, SampleId("d1", "p1", 1))
    judged(ledger, SampleId("d1", "p2"), FinalStatus.TIMEOUT)
    judged(ledger, SampleId("d2", "p1"))
    fold = RunFold(ledger)
    assert fold.catch_up() == 4
    expected = {
        ("d1", FinalStatus.SUCCESS): 2,
        ("d1", FinalStatus.TIMEOUT): 1,
        ("d2", FinalStatus.SUCCESS): 1,
    }
    assert fold.counts() == expected
    for event in ledger.events():
        fold.fold(event)
    assert fold.counts() == expected
    assert fold.catch_up() == 0
    fold.last = "0"
    assert fold.catch_up() == 4
    assert fold.counts() == expected


def test_a_fold_goes_on_where_it_was(ledger: Ledger) -> None:
    fold = RunFold(ledger)
    assert fold.catch_up() == 0
    judged(ledger, SampleId("d1", "p1"))
    assert fold.catch_up() == 1
    judged(ledger, SampleId("d1", "p2"))
    assert fold.catch_up() == 1
    assert len(fold.statuses) == 2


def test_a_long_stream_is_folded_whole(ledger: Ledger) -> None:
    for i in range(1_100):
        judged(ledger, SampleId("d1", f"p{i}"))
    fold = RunFold(ledger)
    assert fold.catch_up() == 1_100
    assert fold.counts() == {("d1", FinalStatus.SUCCESS): 1_100}


def test_a_sample_judged_anew_counts_as_its_last_verdict(ledger: Ledger) -> None:
    sample = SampleId("d1", "p1")
    judged(ledger, sample, FinalStatus.API_ERROR)
    fold = RunFold(ledger)
    fold.catch_up()
    ledger.rejudge(sample, generation(sample).completion_sha256)
    ledger.record_verdict(verdict(generation(sample)))
    fold.catch_up()
    assert fold.counts() == {("d1", FinalStatus.SUCCESS): 1}


def test_all_runs_are_followed(redis: Redis, ledger: Ledger) -> None:
    runs = Runs(redis)
    assert runs.catch_up() is False
    assert list(runs.all()) == ["run-1"]
    other = Ledger(redis, "run-2")
    other.open({"state": "running"}, [])
    judged(other, SampleId("d1", "p1"))
    assert runs.catch_up() is True
    assert runs.catch_up() is False
    assert {name: len(fold.statuses) for name, fold in runs.all().items()} == {
        "run-1": 0,
        "run-2": 1,
    }
    other.delete()
    runs.catch_up()
    assert list(runs.all()) == ["run-1"]


@pytest.mark.parametrize(
    ("state", "due"),
    [
        (RunState.RUNNING, False),
        (RunState.JUDGED, True),
        (RunState.PUBLISHED, False),
        (RunState.FAILED, False),
    ],
)
def test_what_is_to_be_published(redis: Redis, ledger: Ledger, state: RunState, due: bool) -> None:
    ledger.set_meta(state=state)
    runs = Runs(redis)
    runs.catch_up()
    assert [fold.ledger.run for fold in runs.unpublished()] == (["run-1"] if due else [])


def test_a_run_begun_anew_is_counted_anew(redis: Redis, ledger: Ledger) -> None:
    """What ``--force`` does takes less time than the aggregator's interval."""
    judged(ledger, SampleId("d1", "p1"))
    runs = Runs(redis)
    runs.catch_up()
    ledger.delete()
    ledger.open({"state": "running"}, [])
    runs.catch_up()
    assert runs.all()["run-1"].counts() == {}
