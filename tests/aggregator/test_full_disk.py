"""Publishing to a full disk: old artifacts stay intact, and nothing is lost."""

import json
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
from tests.aggregator.reports import finished
from tests.disks import files_up_to
from tests.shared.ledgers import generation, verdict

P1 = SampleId("d1", "p1", 1)


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
