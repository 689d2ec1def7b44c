"""Finished samples in segments: nothing is lost, doubled or changed when a runner is killed."""

import gzip
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.client import Pipeline

import shared.ledger.archive
from shared.artifacts import OutputFolder
from shared.errors import OutputError, ServiceError
from shared.ledger import Ledger, runs_progress
from shared.ledger.archive import Archive
from shared.ledger.keys import RunKeys
from shared.ledger.ledger import unjudged_verdict
from shared.ledger.segments import Mark, segment_folder
from shared.schemas import Generation, SampleId, Verdict
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.shared.ledgers import RUN, enter, generation, verdict

HOLDER = "runner-1"
KEYS = RunKeys(RUN)
SAMPLES = [SampleId("d 1", f"p/{number}", number % 3) for number in range(30)]


def made(sample: SampleId) -> Generation:
    return generation(sample, f"print('{sample.problem_id}', '}}\\n', 'é')", output_tokens=7)


def judged(sample: SampleId) -> Verdict:
    status = FinalStatus.TIMEOUT if sample.sample_index else FinalStatus.SUCCESS
    return verdict(made(sample), status, judged_at=1.5, worker="w")


def packed_cases(sample: SampleId) -> bytes:
    return f"cases of {sample.key}\n".encode()


@pytest.fixture
def ledger(redis: Redis, tmp_path: Path) -> Ledger:
    """A run whose samples are all judged, under the lock of a runner."""
    ledger = Ledger(redis, RUN)
    enter(ledger, output=str(tmp_path))
    ledger.record_all([(made(sample), None) for sample in SAMPLES])
    for sample in SAMPLES:
        assert ledger.record_verdict(judged(sample), packed_cases(sample))
    assert ledger.lock(HOLDER, 60)
    return ledger


@pytest.fixture
def archive(redis: Redis, ledger: Ledger, tmp_path: Path) -> Archive:
    return Archive(redis, RUN, OutputFolder(str(tmp_path)), HOLDER)


def segments(folder: Path) -> list[Path]:
    return sorted((folder / segment_folder(RUN)).glob("*"))


def whole(ledger: Ledger, samples: list[SampleId] = SAMPLES) -> bool:
    """Whether all is as it was recorded, wherever it is."""
    return (
        list(ledger.completions(samples)) == [made(sample) for sample in samples]
        and list(ledger.verdicts(samples)) == [judged(sample) for sample in samples]
        and list(ledger.cases(samples)) == [(one, packed_cases(one)) for one in samples]
        and ledger.completed_count() == len(samples)
        and ledger.open_count() == 0
    )


def test_an_archived_sample_is_read_as_before(
    redis: Redis, ledger: Ledger, archive: Archive
) -> None:
    assert whole(ledger)
    assert archive.move(SAMPLES[:20]) == 20
    assert whole(ledger) and whole(Ledger(redis, RUN))
    assert archive.move(SAMPLES[15:]) == 10
    assert whole(ledger)
    assert ledger.archived_count() == 30
    assert [redis.hlen(key) for key in (KEYS.completions, KEYS.hashes, KEYS.cases)] == [0, 0, 0]
    assert ledger.completion(SAMPLES[3]) == made(SAMPLES[3])
    assert ledger.verdict(SAMPLES[3]) == judged(SAMPLES[3])
    absent = SampleId("d 1", "p/99")
    assert ledger.completion(absent) is None and ledger.verdict(absent) is None
    assert runs_progress(redis)[0].completions == 30


def test_the_status_of_an_archived_sample_is_known_without_its_segment(
    ledger: Ledger, archive: Archive, tmp_path: Path
) -> None:
    archive.move(SAMPLES[:10])
    for path in segments(tmp_path):
        path.unlink()
    found = dict(ledger.standing(SAMPLES))
    assert list(found) == SAMPLES
    for sample in SAMPLES[:10]:
        mark = found[sample]
        assert isinstance(mark, Mark)
        assert mark.status is judged(sample).final_status
        assert mark.sha256 == made(sample).completion_sha256
    assert found[SAMPLES[10]] == judged(SAMPLES[10])


def test_a_segment_is_gzip_of_json_lines(archive: Archive, tmp_path: Path) -> None:
    archive.move(SAMPLES[:2])
    (path,) = segments(tmp_path)
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert lines[0] == {"format": "plumbline segment", "version": 1, "run": RUN, "number": 1}
    assert [list(line) for line in lines[1:]] == [["generation"], ["verdict"], ["cases"]] * 2
    assert Generation.model_validate(lines[1]["generation"]) == made(SAMPLES[0])


def test_what_is_not_finished_stays_in_redis(
    redis: Redis, ledger: Ledger, archive: Archive, tmp_path: Path
) -> None:
    waiting, failed, damaged, unknown = (SampleId("d2", f"q{number}") for number in range(4))
    ledger.record(generation(waiting))
    ledger.record(
        generation(failed), unjudged_verdict(failed, generation(failed).completion_sha256, "no")
    )
    ledger.record(generation(damaged))
    ledger.record_verdict(verdict(generation(damaged)))
    redis.hset(KEYS.completions, damaged.key, b"no zlib")
    assert archive.move([waiting, failed, damaged, unknown]) == 0
    assert segments(tmp_path) == []
    assert redis.hlen(KEYS.completions) == len(SAMPLES) + 3


def test_late_verdicts_of_an_archived_sample(ledger: Ledger, archive: Archive) -> None:
    archive.move(SAMPLES)
    before = ledger.meta()
    sample = SAMPLES[4]
    late = judged(sample).model_copy(update={"worker": "another"})
    assert not ledger.record_verdict(late)
    other = verdict(generation(sample, "another completion"))
    assert not ledger.record_verdict(other)
    assert not ledger.record_verdict(verdict(generation(SampleId("d 1", "p/99"))))
    after = ledger.meta()
    assert after.duplicate_verdicts == before.duplicate_verdicts + 1
    assert after.verdicts_written == before.verdicts_written == len(ledger.events())
    assert whole(ledger)


def test_another_completion_takes_the_place_of_an_archived_one(
    ledger: Ledger, archive: Archive, redis: Redis
) -> None:
    archive.move(SAMPLES)
    sample = SAMPLES[4]
    ledger.record(made(sample))  # the same: nothing happens
    assert whole(ledger) and redis.hlen(KEYS.completions) == 0
    ledger.record(generation(sample, "another"))
    assert ledger.verdict(sample) is None
    assert ledger.completion(sample) == generation(sample, "another")
    assert (ledger.completed_count(), ledger.open_count()) == (30, 1)
    again = verdict(generation(sample, "another"))
    assert ledger.record_verdict(again)
    assert archive.move([sample]) == 1
    assert ledger.verdict(sample) == again
    assert ledger.completion(sample) == generation(sample, "another")
    assert ledger.completed_count() == 30


def test_a_verdict_that_changed_meanwhile_is_not_taken_out(
    ledger: Ledger, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading of the records and the script, they are replaced."""
    open_again, judged_again = SAMPLES[:2]
    others = [generation(sample, "another") for sample in (open_again, judged_again)]
    take_out = Archive._take_out

    def replaced_before(self: Archive, *args: object) -> int:
        for other in others:
            ledger.record(other)
        ledger.record_verdict(verdict(others[1]))
        return take_out(self, *args)

    monkeypatch.setattr(Archive, "_take_out", replaced_before)
    assert archive.move(SAMPLES[:5]) == 3
    assert list(ledger.completions(SAMPLES[:2])) == others
    assert list(ledger.verdicts(SAMPLES[:2])) == [verdict(others[1])]


def test_a_runner_that_lost_the_lock_takes_nothing_out(
    ledger: Ledger, archive: Archive, redis: Redis
) -> None:
    ledger.unlock(HOLDER)
    ledger.lock("runner-2", 60)
    with pytest.raises(ServiceError, match="another runner took over"):
        archive.move(SAMPLES)
    assert redis.hlen(KEYS.completions) == len(SAMPLES)
    assert whole(ledger)


def test_a_runner_that_slept_takes_nothing_out_after_another_session(
    ledger: Ledger, archive: Archive, redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote a segment, slept, and has the lock again; another session has removed its file."""
    take_out = Archive._take_out

    def asleep(self: Archive, *args: object) -> int:
        ledger.unlock(HOLDER)
        ledger.lock("runner-2", 60)
        Archive(redis, RUN, OutputFolder(str(tmp_path)), "runner-2").begin()
        ledger.unlock("runner-2")
        assert ledger.lock(HOLDER, 60)
        return take_out(self, *args)

    monkeypatch.setattr(Archive, "_take_out", asleep)
    with pytest.raises(ServiceError, match="another runner took over"):
        archive.move(SAMPLES)
    assert segments(tmp_path) == []
    assert whole(ledger)


def test_a_runner_whose_lock_expired_takes_nothing_out_and_goes_on(
    ledger: Ledger, archive: Archive, redis: Redis
) -> None:
    ledger.unlock(HOLDER)
    assert archive.move(SAMPLES[:20]) == 0
    assert redis.hlen(KEYS.completions) == len(SAMPLES)
    assert ledger.lock(HOLDER, 60)
    assert archive.move(SAMPLES) == len(SAMPLES)
    assert whole(ledger)


@pytest.mark.parametrize("name", ["../../../../secret", "000001-../../x.jsonl.gz", ""])
def test_redis_does_not_choose_the_file_that_is_read(
    ledger: Ledger, archive: Archive, redis: Redis, name: str
) -> None:
    archive.move(SAMPLES)
    redis.hset(KEYS.segments, "1", name)
    with pytest.raises(OutputError, match="not the name of a segment"):
        ledger.verdict(SAMPLES[0])


def test_segments_of_runs_that_redis_has_survive_another_run_of_the_folder(
    ledger: Ledger, archive: Archive, redis: Redis, tmp_path: Path
) -> None:
    archive.move(SAMPLES)
    left = tmp_path / segment_folder("of-a-deleted-ledger")
    left.mkdir()
    Archive(redis, "run-2", OutputFolder(str(tmp_path)), HOLDER).delete()
    assert not left.exists()
    assert whole(ledger)


def test_a_segment_that_cannot_be_written_loses_nothing(
    ledger: Ledger, archive: Archive, redis: Redis, tmp_path: Path
) -> None:
    (tmp_path / ".plumbline").write_text("a file in its way")
    with pytest.raises(OutputError, match="cannot write"):
        archive.move(SAMPLES)
    assert redis.hlen(KEYS.completions) == len(SAMPLES)
    assert whole(ledger)


def damaged(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(damaged(path.read_bytes())), "cannot be read at byte"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "cannot be read at byte"),
        (lambda path: path.write_bytes(b""), "cannot be read at byte 0"),
    ],
)
def test_a_missing_or_damaged_segment_is_named(
    ledger: Ledger, archive: Archive, tmp_path: Path, harm: Callable[[Path], None], told: str
) -> None:
    archive.move(SAMPLES)
    (path,) = segments(tmp_path)
    harm(path)
    with pytest.raises(OutputError, match=told) as error:
        list(ledger.verdicts(SAMPLES))
    assert str(path) in str(error.value)
    assert "--force" in str(error.value)


def test_segments_of_another_run_are_not_taken_for_its_own(
    redis: Redis, ledger: Ledger, archive: Archive, tmp_path: Path
) -> None:
    archive.move(SAMPLES[:10])
    archive.move(SAMPLES[10:20])
    first, second = segments(tmp_path)
    first.write_bytes(second.read_bytes())
    with pytest.raises(OutputError, match="its header is"):
        ledger.verdict(SAMPLES[0])


@pytest.mark.parametrize("url", ["memory://bucket/runs/one"])
def test_segments_of_a_folder_elsewhere(redis: Redis, url: str) -> None:
    ledger = Ledger(redis, RUN)
    enter(ledger, output=url)
    ledger.lock(HOLDER, 60)
    ledger.record_all([(made(sample), None) for sample in SAMPLES])
    for sample in SAMPLES:
        ledger.record_verdict(judged(sample), packed_cases(sample))
    archive = Archive(redis, RUN, OutputFolder(url), HOLDER)
    for start in range(0, 30, 5):
        archive.move(SAMPLES[start : start + 5])
    assert ledger.archived_count() == 30
    assert whole(ledger)


def test_a_deleted_run_leaves_no_segment(
    ledger: Ledger, archive: Archive, redis: Redis, tmp_path: Path
) -> None:
    archive.move(SAMPLES)
    ledger.delete()
    archive.delete()
    assert segments(tmp_path) == []
    assert not redis.exists(KEYS.segments)


def test_samples_that_redis_lost_come_back_from_a_segment_that_it_does_not_list(
    ledger: Ledger, archive: Archive, redis: Redis, tmp_path: Path
) -> None:
    """As after the restore of a backup that was made before the segment."""
    before = {key: redis.dump(key) for key in redis.scan_iter(f"plumbline:run:{RUN}:*")}
    archive.move(SAMPLES)
    (file,) = segments(tmp_path)
    for key, value in before.items():
        redis.restore(key, 0, value, replace=True)
    redis.delete(KEYS.segments)
    lost = SAMPLES[: len(SAMPLES) // 2]
    for key in (KEYS.hashes, KEYS.completions, KEYS.verdicts, KEYS.cases):
        redis.hdel(key, *(one.key for one in lost))
    jobs = redis.llen("rq:queue:judge")
    renewed: list[None] = []
    Archive(redis, RUN, OutputFolder(str(tmp_path)), HOLDER).begin(lambda: renewed.append(None))
    assert whole(ledger)
    assert redis.llen("rq:queue:judge") == jobs
    assert renewed
    assert not file.exists()


def test_a_segment_that_cannot_be_read_is_no_leftover(
    archive: Archive, redis: Redis, tmp_path: Path
) -> None:
    archive.move(SAMPLES)
    (file,) = segments(tmp_path)
    file.write_bytes(file.read_bytes()[:-20])
    redis.delete(KEYS.segments)
    Archive(redis, RUN, OutputFolder(str(tmp_path)), HOLDER).begin()
    assert segments(tmp_path) == [file]
    Archive(redis, RUN, OutputFolder(str(tmp_path)), HOLDER).begin(resumed=False)
    assert segments(tmp_path) == []


# Kills

_STEPS = (
    (Redis, "execute_command"),
    (Pipeline, "execute"),
    (os, "fsync"),
    (os, "rename"),
    (gzip, "compress"),
)


def _move_and_be_killed(
    url: str, folder: Path, step: int, samples: list[SampleId], at_once: int
) -> None:
    """In a child process: archive all samples, and kill itself before the step of this number."""
    count = 0

    def watched(original: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **values: object) -> object:
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **values)

        return call

    for owner, name in _STEPS:
        setattr(owner, name, watched(getattr(owner, name)))
    shared.ledger.archive._MOVED_AT_ONCE = at_once
    archive = Archive(Redis.from_url(url), RUN, OutputFolder(str(folder)), HOLDER)
    archive.move(samples[: len(samples) // 2])
    archive.move(samples[len(samples) // 3 :])


def _killed(url: str, folder: Path, step: int, samples: list[SampleId], at_once: int) -> bool:
    child = os.fork()
    if child == 0:
        try:
            _move_and_be_killed(url, folder, step, samples, at_once)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize(
    ("number_of_samples", "at_once", "least_kills"),
    [(9, 3, 25), pytest.param(30, 7, 45, marks=pytest.mark.nightly)],
)
def test_a_runner_that_is_killed_at_any_step_loses_and_doubles_nothing(
    redis: Redis,
    redis_server: RedisServer,
    ledger: Ledger,
    tmp_path: Path,
    number_of_samples: int,
    at_once: int,
    least_kills: int,
) -> None:
    """Each step of the archive is the last one of a process; then a new session goes on."""
    samples = SAMPLES[:number_of_samples]
    kills = 0
    for number, folder in _folders(tmp_path):
        redis.flushall()
        enter(ledger, output=str(folder))
        ledger.record_all([(made(sample), None) for sample in samples])
        for sample in samples:
            ledger.record_verdict(judged(sample), packed_cases(sample))
        ledger.lock(HOLDER, 60)
        if not _killed(redis_server.url, folder, number, samples, at_once):
            break
        kills += 1
        after = Ledger(redis, RUN)
        assert whole(after, samples), f"after a kill at step {number}"
        ledger.unlock(HOLDER)
        ledger.lock("runner-2", 60)
        archive = Archive(redis, RUN, OutputFolder(str(folder)), "runner-2")
        archive.begin()
        assert whole(after, samples), f"after a kill at step {number}, with what was left removed"
        archive.move(samples)
        assert whole(after, samples)
        assert redis.hlen(KEYS.completions) == 0
        listed = {name.decode() for name in redis.hvals(KEYS.segments) if b"-" in name}
        assert {path.name for path in segments(folder)} == listed
    assert kills > least_kills  # segments, and what is asked of Redis


def _folders(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    for number in range(1, 200):
        yield number, tmp_path / str(number)
