"""The parts of `make endurance` that judge: schedules, growth, kinds of keys, the result."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from tests.endurance.__main__ import in_flight
from tests.endurance.processes import Held
from tests.endurance.report import picture, table
from tests.endurance.samples import RedisHeld, Sample, files, growth, kind_of, slope
from tests.endurance.schedule import Kind, schedule

pytestmark = pytest.mark.nightly

SEEDS = st.integers(0, 2**31)


@given(SEEDS)
def test_a_seed_draws_the_same_faults_in_order_of_time(seed: int) -> None:
    drawn = schedule(seed, 600, 20)
    assert drawn == schedule(seed, 600, 20)
    times = [fault.at for fault in drawn]
    assert times == sorted(times)
    assert all(at < 600 for at in times)


def test_every_kind_of_fault_is_drawn_and_the_service_itself_lives() -> None:
    drawn = schedule(1, 100_000, 20)
    assert {fault.kind for fault in drawn} == set(Kind)
    assert {fault.kind for fault in drawn if fault.victim == "reward"} == {Kind.FREEZE, Kind.CUT}


def test_a_slope_does_not_follow_a_few_that_are_off() -> None:
    line = [(second, 100 + second / 3600) for second in range(0, 7200, 10)]
    assert slope(line) == pytest.approx(1.0)
    off = [(at, value + (500 if at % 400 == 0 else 0)) for at, value in line]
    assert slope(off) == pytest.approx(1.0, abs=0.05)
    assert slope([(0, 5.0)]) == 0.0


def test_growth_leaves_out_the_first_tenth_and_other_processes() -> None:
    # 90 MB are taken at the start; afterwards it is 36 MB in an hour.
    samples = [sample(at, 10.0 if at < 100 else 100 + at / 100) for at in range(0, 1001, 10)]
    rate, _ = growth(samples, 1)
    assert rate == pytest.approx(36.0)
    assert growth(samples, 2)[0] == 0.0


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("plumbline:reward:0123456789abcdef:answer:a/b%2Fc/1", "plumbline:reward:*:answer:*"),
        ("plumbline:reward:0123456789abcdef:hashes", "plumbline:reward:*:hashes"),
        ("rq:job:0a1b", "rq:job:*"),
        ("plumbline:lease:x", "plumbline:lease:*"),
    ],
)
def test_keys_are_counted_by_kind(key: str, kind: str) -> None:
    assert kind_of(key) == kind


def test_files_are_counted_with_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "one").write_text("12")
    (tmp_path / "below" / "other").write_text("345")
    assert files(tmp_path) == (2, 5)


def test_the_result_has_start_end_and_what_has_changed() -> None:
    samples = [sample(0, 100.0), sample(600, 104.0)]
    shown = table(samples, {"service": 1})
    assert "| service: memory; descriptors; threads; children | 100.0 MB; 12; 3; 0 | 104.0 MB" in (
        shown
    )
    assert "| keys of `answer` | 0 | 600 |  |" in shown
    assert "`lock`" not in shown
    widths = {line.count("|") for line in shown.splitlines()}
    assert widths == {5}


def test_the_picture_is_svg_with_a_line_for_each_kind_of_process() -> None:
    found = ElementTree.fromstring(picture([sample(0, 100.0), sample(600, 104.0)]))
    assert len(found.findall("{http://www.w3.org/2000/svg}polyline")) == 2


def sample(at: float, memory: float) -> Sample:
    """A sample of a service with that memory, and another process that does not grow."""
    processes = [
        Held("reward", 1, at, memory, 12, 3, 0, at / 10),
        Held("redis", 2, at, 20.0, 9, 1, 0, at / 10),
    ]
    redis = RedisHeld(2.5, 5, {"lock": 1, "answer": int(at)}, {})
    return Sample(at, processes, redis, (3, 4), (5, 6), 0)


def test_a_registration_without_its_job_is_not_held(redis: Redis) -> None:
    """RQ's entry of a killed judge stays until it expires, when its job is over."""
    redis.zadd("rq:wip:judge", {f"{'a' * 40}:{'b' * 32}": 1e12})
    assert list(in_flight(redis)) == []
    redis.hset(f"rq:job:{'a' * 40}", "status", "started")
    assert set(in_flight(redis)) == {"rq:wip:judge", f"rq:job:{'a' * 40}"}
