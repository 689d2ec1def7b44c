import pytest
from redis import Redis

from shared.ledger import Ledger, RunProgress, runs_progress
from shared.ledger.streams import entry_order
from shared.schemas import SampleId
from tests.shared.ledgers import enter, generation, verdict

RUN = "run-1"


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    ledger = Ledger(redis, RUN)
    enter(ledger)
    return ledger


def judged(ledger: Ledger, *problems: str) -> None:
    for name in problems:
        ledger.record(generation(name))
        ledger.record_verdict(verdict(generation(name)))


def test_entries_are_read_from_a_position(ledger: Ledger) -> None:
    assert ledger.events() == []
    judged(ledger, "p1", "p2", "p3")
    first = ledger.events(count=2)
    assert [event.sample.problem_id for event in first] == ["p1", "p2"]
    (last,) = ledger.events(first[-1].entry)
    assert last.sample.problem_id == "p3"
    assert ledger.events(ledger.last_event()) == []


def test_entry_order_is_that_of_the_stream() -> None:
    ids = ["10-11", "10-2", "9-0", "10-0", "0"]
    assert sorted(ids, key=entry_order) == ["0", "9-0", "10-0", "10-2", "10-11"]


def test_progress_of_all_runs(redis: Redis, ledger: Ledger) -> None:
    assert runs_progress(redis) == [
        RunProgress(RUN, str(ledger.incarnation()), "running", "0", 0, 0)
    ]
    judged(ledger, "p1", "p2")
    ledger.record(generation("p3"))
    other = Ledger(redis, "run-0")
    enter(other)
    looks = runs_progress(redis)
    assert [look.run for look in looks] == ["run-0", RUN]
    assert looks[0].state == "running"
    assert (looks[1].events, looks[1].completions) == (2, 3)
    assert looks[1].last_event == ledger.last_event()
    redis.sadd("plumbline:runs", "deleted meanwhile")
    assert len(runs_progress(redis)) == 2


def test_the_wait_of_the_oldest_job(ledger: Ledger) -> None:
    assert ledger.queue.oldest_wait() == 0
    ledger.record(generation("p1", sample_index=0))
    assert 0 <= ledger.queue.oldest_wait() < 60
    ledger.record(generation(SampleId("d1", "p2")))
    assert len(ledger.queue) == 2
