"""Progress and summary of a run in a terminal."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from services.cli.display import ProgressDisplay
from shared.run_record import OutageReport, make_plan
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.e2e.plumb import wait_for
from tests.shared.ledgers import problem

DATASETS = ("codecontests_test", "codecontests_valid", "humaneval", "mbpp_reg")


def test_progress_fits_into_a_terminal_of_80_columns() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None)
    plan = make_plan([problem(dataset=name) for name in DATASETS], lambda _problem: range(1))
    with ProgressDisplay(console) as progress:
        progress.planned(plan)
        for sample in plan.samples():
            progress.generated(sample)
            progress.judged(sample, FinalStatus.SUCCESS)
    last = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", out.getvalue()).splitlines()[-6:]
    text = "\n".join(last)
    assert "…" not in text
    assert all(word in text for word in (*DATASETS, "generated", "judged", "accepted so far"))
    assert max(len(line.rstrip()) for line in last) < 80  # an echoed ^C does not wrap


def test_progress_names_the_live_page_as_long_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")  # on a dumb terminal nothing is drawn twice
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None)
    port = tmp_path / "aggregator.port"
    with ProgressDisplay(console) as progress:
        progress.planned(make_plan([problem()], lambda _problem: range(1)))
        progress.page_at(port)
        port.write_text("40123\n")
        wait_for(lambda: "live page: http://127.0.0.1:40123/" in out.getvalue(), "the address", 20)
    last = out.getvalue().rpartition("data set")[2]
    assert "live page" not in last


def test_no_time_is_left_while_the_run_waits_for_a_service() -> None:
    out = io.StringIO()
    plan = make_plan([problem("p1"), problem("p2")], lambda _problem: range(1))
    with ProgressDisplay(Console(file=out, width=200)) as progress:
        progress.planned(plan)
        progress.waits([OutageReport(what="no judge is there", since=1.0)])
        progress.judged(plan.samples()[0], FinalStatus.SUCCESS)
        during = progress.report()
        progress.waits([])
        progress.judged(plan.samples()[1], FinalStatus.SUCCESS)
    waiting, after = out.getvalue().splitlines()
    assert waiting.endswith("waiting)") and after.endswith("left)")
    assert [outage.what for outage in during.outages] == ["no judge is there"]
    assert during.seconds_left is None
    assert progress.report().seconds_left == 0


def test_a_sample_is_counted_once_with_its_latest_verdict() -> None:
    """Also where a problem's samples are not numbered without gaps."""
    out = io.StringIO()
    plan = make_plan([problem("p1"), problem("p2")], lambda _problem: [4, 2, 9])
    with ProgressDisplay(Console(file=out, width=200)) as progress:
        progress.planned(plan)
        samples = plan.samples()
        progress.resumed(samples[:1], {samples[0]: FinalStatus.API_ERROR})
        for sample in (*samples, *samples):
            progress.generated(sample)
        progress.judged(samples[0], FinalStatus.WRONG_ANSWER)
        progress.judged(samples[3], FinalStatus.WRONG_ANSWER)
        progress.judged(samples[3], FinalStatus.SUCCESS)
        progress.judged(samples[5], FinalStatus.SUCCESS)
        progress.judged(SampleId("d1", "p3"), FinalStatus.SUCCESS)  # not in the plan
        progress.judged(SampleId("d1", "p1", 3), FinalStatus.SUCCESS)
    assert "d1: generated 6/6, judged 3/6, accepted 2 (" in out.getvalue().splitlines()[-1]
