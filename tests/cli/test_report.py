"""`plumb report`, and the selection of one of several runs with the same name."""

from pathlib import Path

import pytest
from redis import Redis

from services.aggregator.publish import publish
from shared import artifacts
from tests.aggregator.reports import finished
from tests.cli.commands import plumb


@pytest.fixture
def run(redis: Redis, tmp_path: Path) -> Path:
    publish(finished(redis, str(tmp_path / "outputs" / "mine")))
    return tmp_path / "outputs" / "mine"


def test_the_page_of_a_run(run: Path, tmp_path: Path) -> None:
    published = (run / artifacts.REPORT).read_bytes()
    (run / artifacts.REPORT).unlink()
    done = plumb("report", "outputs/mine", folder=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout == "outputs/mine/report.html\n"
    assert (run / artifacts.REPORT).read_bytes() == published


def test_what_is_not_in_the_page_is_said(run: Path, tmp_path: Path) -> None:
    path = run / artifacts.VERDICTS
    path.write_bytes(path.read_bytes()[:-9])
    done = plumb("report", "outputs/mine", folder=tmp_path)
    assert done.code == 0
    assert "verdicts.jsonl:4" in done.line
    assert done.line.startswith("note: Left out: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none"], "none: no run in this folder"),
        (["outputs/mine", "--out", "outputs"], "outputs: a folder; name the file to write"),
        (["outputs/mine", "--out", "there/"], "there/: a folder; name the file to write"),
        (["outputs/mine", "--out", "outputs/mine/run.json/x.html"], "cannot write outputs/mine"),
    ],
)
def test_what_cannot_be_done(run: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    done = plumb("report", *arguments, folder=tmp_path)
    assert done.code == 2
    assert said in done.line
