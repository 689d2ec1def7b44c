import pytest
from redis import Redis

from shared.ledger import EventGroup, Ledger, RunProgress, runs_progress
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


def names(entries) -> list[str]:
    return [entry.event.sample.problem_id for entry in entries]


def test_without_a_stream_nothing_is_read_and_nothing_made(redis: Redis, ledger: Ledger) -> None:
    group = EventGroup(redis, "a", "c1")
    assert group.begin(RUN, "0") is False
    assert group.read(RUN, "0") == []
    assert not redis.exists("plumbline:run:run-1:events")


def test_each_entry_is_delivered_once_and_pending_until_acknowledged(
    redis: Redis, ledger: Ledger
) -> None:
    judged(ledger, "p1", "p2", "p3")
    group = EventGroup(redis, "a", "c1")
    group.begin(RUN, "0")
    first = group.read(RUN, "0", count=2)
    assert names(first) == ["p1", "p2"]
    assert group.pending(RUN) == 2
    group.ack(RUN, [entry.id for entry in first])
    assert group.pending(RUN) == 0
    assert names(group.read(RUN, first[-1].id)) == ["p3"]
    assert group.read(RUN, first[-1].id) == []


def test_what_a_dead_reader_had_is_delivered_again_from_the_kept_position(
    redis: Redis, ledger: Ledger
) -> None:
    judged(ledger, "p1", "p2", "p3", "p4")
    dead = EventGroup(redis, "a", "c1")
    dead.begin(RUN, "0")
    entries = dead.read(RUN, "0", count=3)
    # p1 was kept and acknowledged, p2 kept and not acknowledged, p3 neither.
    dead.ack(RUN, [entries[0].id])
    heir = EventGroup(redis, "a", "c2")
    heir.begin(RUN, entries[1].id)
    assert heir.pending(RUN) == 1
    found = heir.read(RUN, entries[1].id)
    assert names(found) == ["p3", "p4"]
    heir.ack(RUN, [entry.id for entry in found])
    assert heir.pending(RUN) == 0
    consumers = redis.xinfo_consumers("plumbline:run:run-1:events", "index:a")
    assert [consumer["name"] for consumer in consumers] == [b"c2"]


def test_what_was_acknowledged_and_then_forgotten_is_delivered_again(
    redis: Redis, ledger: Ledger
) -> None:
    """A power failure may take the reader's last commits, after Redis was told of them."""
    judged(ledger, "p1", "p2")
    group = EventGroup(redis, "a", "c1")
    group.begin(RUN, "0")
    entries = group.read(RUN, "0")
    group.ack(RUN, [entry.id for entry in entries])
    again = EventGroup(redis, "a", "c1")
    again.begin(RUN, entries[0].id)
    assert names(again.read(RUN, entries[0].id)) == ["p2"]


def test_many_pending_entries_are_taken_over(redis: Redis, ledger: Ledger) -> None:
    for number in range(1_500):
        fields = {"sample": f"d1/p{number}/0", "status": "success", "accepted": 1}
        redis.xadd("plumbline:run:run-1:events", fields)
    dead = EventGroup(redis, "a", "c1")
    dead.begin(RUN, "0")
    last = dead.read(RUN, "0", count=1_500)[-1].id
    heir = EventGroup(redis, "a", "c2")
    heir.begin(RUN, last)
    assert heir.pending(RUN) == 0
    assert heir.read(RUN, last) == []


def test_only_abandoned_groups_of_other_readers_are_dropped(redis: Redis, ledger: Ledger) -> None:
    judged(ledger, "p1")
    stream = "plumbline:run:run-1:events"
    for name in ("a", "b"):
        group = EventGroup(redis, name, "c")
        group.begin(RUN, "0")
        group.read(RUN, "0")
    redis.xgroup_create(stream, "somebody's", id="0")
    group = EventGroup(redis, "a", "c")
    group.drop_abandoned(RUN, idle=600)
    assert len(redis.xinfo_groups(stream)) == 3
    group.drop_abandoned(RUN, idle=0)
    assert [found["name"] for found in redis.xinfo_groups(stream)] == [b"index:a", b"somebody's"]


def test_an_entry_nobody_can_read_is_delivered_as_such(redis: Redis, ledger: Ledger) -> None:
    redis.xadd("plumbline:run:run-1:events", {"sample": "x", "status": "y"})
    group = EventGroup(redis, "a", "c")
    (entry,) = group.read(RUN, "0")
    assert entry.event is None


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
    assert ledger.queue.workers() == 0
    ledger.record(generation("p1", sample_index=0))
    assert 0 <= ledger.queue.oldest_wait() < 60
    ledger.record(generation(SampleId("d1", "p2")))
    assert len(ledger.queue.waiting()) == 2
