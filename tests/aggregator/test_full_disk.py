"""Publishing to a full disk: old artifacts stay intact, and nothing is lost."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from services.aggregator.__main__ import publish_due
from services.aggregator.ingest import Ingester
from services.aggregator.publish import publish
from shared import artifacts
from shared.errors import OutputError
from shared.ledger import Ledger
from shared.run_record import RunState
from shared.schemas import SampleId
from tests.aggregator.reports import data_of, finished
from tests.disks import files_up_to
from tests.shared.ledgers import generation, verdict

P1 = SampleId("d1", "p1", 1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 900 KB, full but for what the test leaves."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = ["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(folder)]
    if subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def judged_again(ledger: Ledger, size: int) -> None:
    """Another, long answer of one sample."""
    made = generation(P1, "x" * size)
    ledger.record(made)
    assert ledger.record_verdict(verdict(made))
    ledger.set_state(RunState.JUDGED)


def test_a_file_that_cannot_be_written_leaves_the_old_one(redis: Redis, tmp_path: Path) -> None:
    ledger = finished(redis, str(tmp_path / "run"))
    publish(ledger)
    before = contents(tmp_path / "run")
    judged_again(ledger, 300_000)
    with files_up_to(200_000), pytest.raises(OutputError, match=r"generations\.jsonl"):
        publish(ledger)
    assert contents(tmp_path / "run") == before
    assert ledger.state() is RunState.JUDGED


def test_a_report_that_cannot_be_written_stands_alone(redis: Redis, tmp_path: Path) -> None:
    """All other artifacts are there; only the page is not, and the next try makes it."""
    ledger = finished(redis, str(tmp_path / "run"))
    ingester = Ingester(redis)
    with files_up_to(30_000):
        publish_due(ingester)
    assert ledger.state() is RunState.FAILED
    assert artifacts.REPORT in ledger.meta().publish_error
    there = contents(tmp_path / "run")
    assert artifacts.REPORT not in there
    assert not [name for name in there if name.endswith(".tmp")]
    assert json.loads(there[artifacts.RUN])["complete"] is True
    assert {artifacts.SUMMARY, artifacts.SLICES, artifacts.VERDICTS} < there.keys()
    ledger.set_state(RunState.JUDGED)
    publish_due(ingester)
    assert ledger.state() is RunState.COMPLETE
    assert (tmp_path / "run" / artifacts.REPORT).exists()


def test_a_full_disk(redis: Redis, small_disk: Path) -> None:
    ledger = finished(redis, str(small_disk / "run"))
    publish(ledger)
    before = contents(small_disk)
    free = 900 * 1024 - sum(-(-len(data) // 4096) * 4096 for data in before.values())
    (small_disk / "other").write_bytes(b"x" * (free - 40_000))
    judged_again(ledger, 9_000)
    publish_due(Ingester(redis))
    assert ledger.state() is RunState.FAILED
    assert "No space left on device" in ledger.meta().publish_error
    there = contents(small_disk / "run")
    assert there.keys() == {name.removeprefix("run/") for name in before}
    assert there[artifacts.REPORT] == before[f"run/{artifacts.REPORT}"]
    assert len(there[artifacts.GENERATIONS].splitlines()) == 4
    (small_disk / "other").unlink()
    ledger.set_state(RunState.JUDGED)
    publish_due(Ingester(redis))
    assert ledger.state() is RunState.COMPLETE
    assert "x" * 9_000 in json.dumps(data_of(small_disk / "run" / artifacts.REPORT))
